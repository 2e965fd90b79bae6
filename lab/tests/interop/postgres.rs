//! One lock on PostgreSQL, taken by psql, by psycopg, by node-postgres and by leasehold.
//!
//! `LAB_CYCLES` is how often each party acquires it.
//!
//! Shows G-01, G-02.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::{Event, EventKind, Testbed, WorkerConfig, check, foreign, now, suspended};
use lab_servers::{Postgres, PostgresSession};

use crate::WORKER;
use crate::redis_locks::client_command;

const CYCLES: u64 = 50;
const PSQL_THREAD: u32 = 1_000;
/// Every so many holds are renewed.
const RENEWED: u64 = 10;
/// The programs, each with the number of its thread. Their holds write a row, and psql's too.
const PROGRAMS: [(&str, u32); 4] = [
    ("psycopg", 2_000),
    ("psycopg", 2_001),
    ("node_postgres", 3_000),
    ("node_postgres", 3_001),
];

#[test]
fn clients_in_four_languages_exclude_each_other() -> Result<()> {
    let cycles = std::env::var("LAB_CYCLES").map_or(Ok(CYCLES), |cycles| cycles.parse())?;
    let server = Postgres::start();
    let testbed = Testbed::at(
        WORKER,
        &format!("postgres://postgres@{}/postgres", server.address()),
    )?;
    server.run("CREATE TABLE orders (value bigint); INSERT INTO orders VALUES (0)");

    let config = WorkerConfig {
        cycles,
        ..WorkerConfig::default()
    };
    let workers = [testbed.start(config.clone())?, testbed.start(config)?];
    let programs = PROGRAMS.map(|(program, thread)| -> Result<_> {
        let mut command = program_command(program, &server.address(), thread, cycles)?;
        let events = testbed.scratch_file();
        command.stdout(File::create(&events)?);
        let child = command.spawn();
        let child = child.with_context(|| format!("cannot start {program}"))?;
        Ok((program, child, events))
    });
    let mut session = server.session();
    let psql = thread::spawn(move || acquire_by_psql(&mut session, cycles));

    let mut events = psql.join().expect("psql does not panic")?;
    for started in programs {
        let (program, mut child, file) = started?;
        ensure!(child.wait()?.success(), "{program} has failed");
        // Node reads the monotonic clock.
        let offset = if program.starts_with("node") {
            suspended()
        } else {
            0
        };
        for line in fs::read_to_string(file)?.lines() {
            let mut event: Event = line.parse()?;
            event.at += offset;
            events.push(event);
        }
    }
    for worker in workers {
        events.extend(worker.finish()?);
    }
    let holds = check::all(&events)?.len() as u64;
    let parties = 3 + PROGRAMS.len() as u64;
    println!("{holds} holds of {parties} parties");
    ensure!(holds == parties * cycles, "{holds} holds");
    let written: u64 = server.run("SELECT value FROM orders")[0].parse()?;
    let writes = (PROGRAMS.len() as u64 + 1) * cycles;
    ensure!(written == writes, "updates are lost: {written} of {writes}");
    testbed.check_empty(&["a".to_owned()])
}

/// The example of docs/other-languages.md waits for another holder, whose lease ends.
#[test]
fn python_example_of_the_page_runs() -> Result<()> {
    const PAGE: &str = include_str!("../../../docs/other-languages.md");
    let (_, block) = PAGE.split_once("```python\ndb = ").context("an example")?;
    let (block, _) = block.split_once("```").context("its end")?;
    let server = Postgres::start();
    let address = server.address();
    let testbed = Testbed::at(WORKER, &format!("postgres://postgres@{address}/postgres"))?;
    testbed.start(WorkerConfig::default())?.finish()?;
    server.run("CREATE TABLE reports (made_at timestamptz); INSERT INTO reports VALUES (NULL)");
    server.run("CALL leasehold.acquire('nightly', lease => interval '2 s')");

    let program = testbed.scratch_file();
    let url = format!("postgresql://postgres@{address}/postgres");
    let text = format!("import time\nimport psycopg\nurl = '{url}'\ndb = {block}");
    fs::write(&program, text)?;
    ensure!(
        foreign::python(&program).status()?.success(),
        "it has failed"
    );
    let made = server.run("SELECT count(*) FROM reports WHERE made_at IS NOT NULL");
    ensure!(made == ["1"], "{made:?}");
    testbed.check_empty(&["nightly".to_owned()])
}

/// Returns the command that starts a program in another language.
fn program_command(program: &str, address: &str, thread: u32, cycles: u64) -> Result<Command> {
    let url = format!("postgresql://postgres@{address}/postgres");
    if program != "psycopg" {
        return client_command(program, &url, &["a", &thread.to_string()], cycles);
    }
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/peers");
    let mut command = foreign::python(&peers.join("psycopg_peer.py"));
    command.args([&*url, "a", &thread.to_string(), &cycles.to_string()]);
    Ok(command)
}

fn acquire_by_psql(session: &mut PostgresSession, cycles: u64) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    let mut record = |kind| {
        events.push(Event {
            at: now(),
            thread: PSQL_THREAD,
            name: 0,
            kind,
        });
    };
    for cycle in 0..cycles {
        record(EventKind::Requested);
        let mut reply = acquired(session, "'a'")?;
        while reply.1.is_none() {
            thread::sleep(Duration::from_millis(20));
            reply = acquired(session, &format!("'a', claim => '{}'", reply.0))?;
        }
        let (claim, token) = reply;
        let token = token.context("it is granted")?;
        record(EventKind::Granted {
            token,
            weight: 1,
            capacity: 1,
        });
        write_by_psql(session, &claim, token)?;
        let mut call = |verb| {
            let done = session.run(&format!("CALL leasehold.{verb}('a', '{claim}')"));
            ensure!(done == ["t"], "{verb}: {done:?}");
            Ok(())
        };
        if cycle % RENEWED == 0 {
            call("renew")?;
        }
        record(EventKind::Releasing);
        call("release")?;
        record(EventKind::Released);
    }
    Ok(events)
}

/// Reads and writes a row in one transaction, which pins the grant.
fn write_by_psql(session: &mut PostgresSession, claim: &str, token: u64) -> Result<()> {
    let read = session.run(&format!(
        "BEGIN; SELECT leasehold.check('a', {token}, '{claim}'); SELECT value FROM orders"
    ));
    let value = read.last().and_then(|value| value.parse::<u64>().ok());
    let value = value.with_context(|| format!("{read:?}"))? + 1;
    let written = session.run(&format!("UPDATE orders SET value = {value}; COMMIT"));
    ensure!(written.is_empty(), "{written:?}");
    Ok(())
}

/// Returns the claim, and the token if it is granted.
fn acquired(session: &mut PostgresSession, arguments: &str) -> Result<(String, Option<u64>)> {
    let reply = session.run(&format!("CALL leasehold.acquire({arguments})"));
    let mut columns = reply[0].split('|');
    let claim = columns.next().context("a claim")?.to_owned();
    let token = columns.next().with_context(|| format!("{reply:?}"))?;
    Ok((claim, token.parse().ok()))
}
