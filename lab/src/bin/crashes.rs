//! Measures how long a lock stays held after `kill -9` of its holder: of `leasehold run`, of a
//! program in Rust, and of other libraries.
//!
//! With names of figures as arguments, it measures only those. The number of kills of leasehold
//! comes first, if it is given: `crashes 20 run`.

use std::env;
use std::fs::File;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::baselines::{BaselineConfig, Client, Request};
use lab::{Peer, now, until};
use lab_servers::{Postgres, Redis, Wire};
use leasehold::blocking::{self, Locks};
use tempfile::TempDir;

/// The kills of leasehold.
const KILLS: usize = 200;
/// The kills of another library, which take half a minute each, and how many take place at a time.
const PEER_KILLS: usize = 20;
const PEERS_AT_A_TIME: usize = 5;
/// The lease of the other libraries, which is the default of Redisson.
const PEER_LEASE: Duration = Duration::from_secs(30);
/// Longer than a lease.
const PEER_TIMEOUT_MILLIS: u64 = 60_000;
/// The delay of the proxy in each direction.
const DELAY: Duration = Duration::from_millis(20);
/// A program that tries does so this often.
const TRY_INTERVAL: Duration = Duration::from_secs(1);
/// A kill of a run that takes longer is printed with what its processes have logged.
const SLOW: Duration = Duration::from_millis(500);
const NAME: &str = "orders/42";

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [role, url] = &arguments[..]
        && let Some(role) = Role::parse(role)
    {
        return role.play(url);
    }

    let kills = arguments.first().and_then(|count| count.parse().ok());
    let names = &arguments[usize::from(kills.is_some())..];
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    let kills = kills.unwrap_or(KILLS);
    println!("| figure | kills | p50 | longest | goal |\n|---|---|---|---|---|");

    let server = Redis::start();
    let wire = Wire::to(server.address());
    wire.delay(DELAY);
    let runs = |url: String, name| Figure::of_runs(name, &url, kills);
    let programs =
        |role, name, goal, kills| Figure::of_programs(name, &server.url(), role, goal, kills);
    if is_wanted("run") {
        runs(server.url(), "run")?.print();
    }
    if is_wanted("run-20ms") {
        runs(wire.url_of("redis"), "run-20ms")?.print();
    }
    if is_wanted("program") {
        programs(Role::Wait, "program", Some(1.0), kills)?.print();
    }
    if is_wanted("program-try") {
        programs(Role::Try, "program-try", Some(2.0), kills.min(20))?.print();
    }
    if is_wanted("postgres") || is_wanted("postgres-apart") {
        let server = Postgres::start();
        let url = format!("{}&crash-grace=1s", server.url());
        for (name, role, goal) in [
            ("postgres", Role::Wait, 1.0),
            ("postgres-apart", Role::WaitApart, 1.3),
        ] {
            if is_wanted(name) {
                Figure::of_programs(name, &url, role, Some(goal), kills)?.print();
            }
        }
    }
    for peer in ["redisson", "set-nx-ex"] {
        if is_wanted(peer) {
            Figure::of_peer(peer, &server)?.print();
        }
    }
    Ok(())
}

/// What this program does as a client in Rust. It prints a line once it holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Wait,
    /// As on another machine: its connection alone shows that it has ended.
    WaitApart,
    /// Prints a line at the first refusal too.
    Try,
}

impl Role {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "wait" => Some(Self::Wait),
            "wait-apart" => Some(Self::WaitApart),
            "try" => Some(Self::Try),
            _ => None,
        }
    }

    fn argument(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::WaitApart => "wait-apart",
            Self::Try => "try",
        }
    }

    fn play(self, url: &str) -> Result<()> {
        if self == Self::WaitApart {
            leasehold::keep_no_process_file();
        }
        let lock = blocking::open(url)?.mutex(NAME);
        let mut refusals = 0;
        let _guard = loop {
            if self != Self::Try {
                break lock.acquire()?;
            }
            if let Ok(guard) = lock.try_acquire()? {
                break guard;
            }
            refusals += 1;
            if refusals == 1 {
                println!("refused");
            }
            thread::sleep(TRY_INTERVAL);
        };
        println!("held");
        loop {
            thread::park();
        }
    }
}

/// The times from each kill until the next client holds the lock.
struct Figure {
    name: &'static str,
    times: Vec<Duration>,
    goal: Option<f64>,
}

impl Figure {
    /// Kills runs, each while the next one waits.
    fn of_runs(name: &'static str, url: &str, kills: usize) -> Result<Self> {
        let folder = TempDir::new()?;
        let locks = blocking::open(url)?;
        let program = env::current_exe()?.with_file_name("leasehold");
        ensure!(program.exists(), "build leasehold-cli first");
        let start = |number: usize| {
            let log = File::create(folder.path().join(number.to_string()))?;
            let mut command = Peer::command(&program);
            command
                .args(["run", NAME, "--quiet", "--", "sh", "-c"])
                .arg("echo held; exec sleep infinity")
                .env("LEASEHOLD_STORE", url)
                .env("LEASEHOLD_LOG", "debug")
                .stderr(log);
            Peer::start(&mut command)
        };

        let mut holder = start(0)?;
        holder.receive_line()?;
        let mut times = Vec::new();
        for number in 1..=kills {
            let mut next = start(number)?;
            until_waits(&locks)?;
            times.push(kill_until_granted(holder, &mut next)?);
            holder = next;
            if times[number - 1] > SLOW {
                let time = times[number - 1];
                eprintln!("{name}: kill {number} took {time:?}");
                print_logs(folder.path(), number)?;
            }
        }
        Ok(Self {
            name,
            times,
            goal: Some(SLOW.as_secs_f64()),
        })
    }

    fn of_programs(
        name: &'static str,
        url: &str,
        role: Role,
        goal: Option<f64>,
        kills: usize,
    ) -> Result<Self> {
        let locks = blocking::open(url)?;
        let start = || {
            let mut command = Peer::command(env::current_exe()?);
            Peer::start(command.args([role.argument(), url]))
        };

        let mut holder = start()?;
        holder.receive_line()?;
        let mut times = Vec::new();
        for _ in 0..kills {
            let mut next = start()?;
            match role {
                Role::Wait | Role::WaitApart => until_waits(&locks)?,
                Role::Try => ensure!(next.receive_line()? == "refused"),
            }
            times.push(kill_until_granted(holder, &mut next)?);
            holder = next;
        }
        Ok(Self { name, times, goal })
    }

    /// Kills clients of another library, several pairs at a time with a lock each.
    fn of_peer(name: &'static str, server: &Redis) -> Result<Self> {
        let folder = TempDir::new()?;
        let times = thread::scope(|scope| {
            let lanes: Vec<_> = (0..PEERS_AT_A_TIME)
                .map(|lane| {
                    let folder = folder.path();
                    scope.spawn(move || kill_peers(name, server, folder, lane))
                })
                .collect();
            let joined = lanes.into_iter().map(|lane| lane.join().expect("no panic"));
            joined.collect::<Result<Vec<_>>>()
        })?;
        Ok(Self {
            name,
            times: times.concat(),
            goal: None,
        })
    }

    fn print(mut self) {
        self.times.sort_unstable();
        let seconds = |at: usize| format!("{:.3} s", self.times[at].as_secs_f64());
        let count = self.times.len();
        let goal = self
            .goal
            .map_or_else(String::new, |goal| format!("≤ {goal} s"));
        let (name, p50, longest) = (self.name, seconds(count / 2), seconds(count - 1));
        println!("| {name} | {count} | {p50} | {longest} | {goal} |");
    }
}

fn kill_peers(name: &str, server: &Redis, folder: &Path, lane: usize) -> Result<Vec<Duration>> {
    let program = env::current_exe()?.with_file_name("baseline");
    let config = BaselineConfig {
        contender: name.to_owned(),
        server: server.address(),
        name: format!("{name}-{lane}"),
        lease: PEER_LEASE,
        worker: 0,
        resources: folder.to_owned(),
    };
    let start = || {
        let mut client = Client::start(&program, &config)?;
        client.send(Request::Acquire(PEER_TIMEOUT_MILLIS))?;
        anyhow::Ok(client.process)
    };

    let mut holder = start()?;
    holder.receive_line()?;
    let mut times = Vec::new();
    for _ in 0..PEER_KILLS / PEERS_AT_A_TIME {
        // It need not wait yet: the lease lasts much longer than its request takes.
        let mut next = start()?;
        times.push(kill_until_granted(holder, &mut next)?);
        holder = next;
    }
    Ok(times)
}

fn kill_until_granted(holder: Peer, next: &mut Peer) -> Result<Duration> {
    let killed_at = holder.kill()?;
    let line = next.receive_line()?;
    let granted_at = now();
    ensure!(
        !line.contains("NotGranted") && !line.contains("Failed"),
        "{line}"
    );
    Ok(Duration::from_nanos(granted_at - killed_at))
}

fn until_waits(locks: &Locks) -> Result<()> {
    until("the next client to wait", || {
        let waits = locks.inspect(NAME)?.waiters().next().is_some();
        Ok(waits.then_some(()))
    })
}

fn print_logs(folder: &Path, number: usize) -> Result<()> {
    for number in [number - 1, number] {
        let log = std::fs::read_to_string(folder.join(number.to_string()));
        eprintln!("run {number}:\n{}", log.context("a log")?);
    }
    Ok(())
}
