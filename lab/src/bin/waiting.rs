//! What processes cost that wait for one lock on PostgreSQL: `waiting [PROCESSES] [pooler]`.
//!
//! Each is a `leasehold run`. First nobody is granted for two minutes, in the first of which the
//! waiters learn how slow their queue is, and then each holder sleeps for a second. With `pooler`,
//! all connect to a PgBouncer that has eighty connections to a server whose `max_connections` is 100.

use std::env;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab_servers::{PgBouncer, Postgres, PostgresSession, Wire};
use serde_json::Value;

const NAME: &str = "orders/42";
/// The length of each measurement.
const SPAN: Duration = Duration::from_secs(60);
/// An idle session of PostgreSQL reports its transactions so late, also those of its start.
const REPORTED_AFTER: Duration = Duration::from_secs(11);
/// So many processes start at a time.
const STARTED_AT_ONCE: usize = 20;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let processes = arguments.first().map_or(Ok(1_000), |count| count.parse())?;
    let has_pooler = arguments.iter().any(|word| word == "pooler");
    let connections = if has_pooler { 100 } else { 2 * processes + 100 };
    let server = Postgres::configured(&[&format!("max_connections={connections}"), "fsync=on"]);
    let wire = Wire::to(server.address());
    let pooler = has_pooler.then(|| PgBouncer::behind(&wire, "transaction", 80));
    let url = match &pooler {
        Some(pooler) => format!("postgres://postgres@{}/postgres", pooler.address()),
        None => server.url(),
    };

    let mut session = server.session();
    let mut waiting = Waiting(vec![run(&url, "1000000")?]);
    until_in_queue(&url, 1)?;
    while waiting.0.len() <= processes {
        for _ in 0..STARTED_AT_ONCE.min(processes + 1 - waiting.0.len()) {
            waiting.0.push(run(&url, "1")?);
        }
        until_in_queue(&url, waiting.0.len())?;
    }

    println!(
        "| phase | requests/s of each | connections | server | a process |\n|---|---|---|---|---|"
    );
    sleep(REPORTED_AFTER);
    measure("first minute", &mut session, &waiting)?;
    measure("idle", &mut session, &waiting)?;
    let mut holder = waiting.0.remove(0);
    end(&mut holder)?;
    measure("hand-overs", &mut session, &waiting)
}

/// The processes, which end with this value.
struct Waiting(Vec<Child>);

impl Drop for Waiting {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Its COMMAND is ended by its watchdog.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn run(url: &str, seconds: &str) -> Result<Child> {
    let started = leasehold()?
        .args([
            "run", "-q", "--store", url, "-w", "1h", NAME, "--", "sleep", seconds,
        ])
        .stdin(Stdio::null())
        .spawn();
    started.context("cannot start leasehold")
}

fn leasehold() -> Result<Command> {
    let program = env::current_exe()?.with_file_name("leasehold");
    ensure!(program.exists(), "build leasehold-cli first");
    Ok(Command::new(program))
}

fn end(child: &mut Child) -> Result<()> {
    let pid = child.id().to_string();
    ensure!(Command::new("kill").arg(pid).status()?.success());
    child.wait()?;
    Ok(())
}

/// Waits until so many claims are in the queue.
fn until_in_queue(url: &str, count: usize) -> Result<()> {
    let begun = Instant::now();
    loop {
        let mut show = leasehold()?;
        let shown = show
            .args(["show", "--json", "--store", url, NAME])
            .output()?;
        let state: Value = serde_json::from_slice(&shown.stdout)?;
        let lists = ["holders", "waiters"].map(|list| state[list].as_array().map_or(0, Vec::len));
        let found: usize = lists.iter().sum();
        if found >= count {
            return Ok(());
        }
        ensure!(begun.elapsed() < SPAN, "{found} of {count} claims");
        sleep(Duration::from_millis(100));
    }
}

fn measure(phase: &str, session: &mut PostgresSession, waiting: &Waiting) -> Result<()> {
    const REQUESTS: &str = "SELECT xact_commit + xact_rollback FROM pg_stat_database \
        WHERE datname = current_database()";
    const CONNECTIONS: &str =
        "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'";

    let before: f64 = session.run(REQUESTS)[0].parse()?;
    sleep(SPAN);
    let after: f64 = session.run(REQUESTS)[0].parse()?;
    let requests = (after - before) / SPAN.as_secs_f64();
    let connections = &session.run(CONNECTIONS)[0];
    let servers = session.run("SELECT pid FROM pg_stat_activity");
    let of_server: u64 = servers.iter().map(|pid| memory(pid)).sum();
    let of_waiting: u64 = waiting
        .0
        .iter()
        .map(|child| memory(&child.id().to_string()))
        .sum();
    let count = u32::try_from(waiting.0.len())?;
    println!(
        "| {phase} | {:.3} | {connections} | {} MB | {:.1} MB |",
        requests / f64::from(count),
        of_server / 1_000,
        f64::from(u32::try_from(of_waiting)?) / 1_000.0 / f64::from(count),
    );
    Ok(())
}

/// The memory of a process in kilobytes, in which each page counts in part for each of its users.
fn memory(pid: &str) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let shares = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let shares = shares.and_then(|shares| shares.trim().strip_suffix(" kB"));
    shares.map_or(0, |shares| shares.parse().unwrap_or(0))
}
