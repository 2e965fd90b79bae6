//! One lock on PostgreSQL, taken by psql, by psycopg and by leasehold.
//!
//! `LAB_CYCLES` is how often each party acquires it.
//!
//! Shows G-01, G-02.

use std::fs::{self, File};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::{Event, EventKind, Testbed, WorkerConfig, check, foreign, now};
use lab_servers::{Postgres, PostgresSession};

use crate::WORKER;

const CYCLES: u64 = 50;
/// A thread of psql, and the first one of psycopg.
const PSQL: u32 = 1_000;
const PSYCOPG: [u32; 2] = [2_000, 2_001];

#[test]
fn psql_psycopg_and_leasehold_exclude_each_other() -> Result<()> {
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
    let psycopg = PSYCOPG.map(|thread| -> Result<_> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/peers");
        let (host, port) = server.address().split_once(':').map_or_else(
            || unreachable!("it has a port"),
            |(host, port)| (host.to_owned(), port.to_owned()),
        );
        let dsn = format!("host={host} port={port} user=postgres dbname=postgres");
        let mut command = foreign::python(&program.join("psycopg_peer.py"));
        command.args([&dsn, "a", &thread.to_string(), &cycles.to_string()]);
        let events = testbed.scratch_file();
        command.stdout(File::create(&events)?);
        Ok((command.spawn().context("cannot start psycopg")?, events))
    });
    let mut session = server.session();
    let psql = thread::spawn(move || acquire_by_psql(&mut session, cycles));

    let mut events = psql.join().expect("psql does not panic")?;
    for peer in psycopg {
        let (mut child, file) = peer?;
        ensure!(child.wait()?.success(), "psycopg has failed");
        for line in fs::read_to_string(file)?.lines() {
            events.push(line.parse()?);
        }
    }
    for worker in workers {
        events.extend(worker.finish()?);
    }
    let holds = check::all(&events)?.len() as u64;
    println!("{holds} holds of 5 parties");
    ensure!(holds == 5 * cycles, "{holds} holds");
    let written: u64 = server.run("SELECT value FROM orders")[0].parse()?;
    ensure!(written == 2 * cycles, "psycopg has lost updates: {written}");
    testbed.check_empty(&["a".to_owned()])
}

fn acquire_by_psql(session: &mut PostgresSession, cycles: u64) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    let mut record = |kind| {
        events.push(Event {
            at: now(),
            thread: PSQL,
            name: 0,
            kind,
        });
    };
    for _ in 0..cycles {
        record(EventKind::Requested);
        let mut reply = acquired(session, "'a'")?;
        while reply.1.is_none() {
            thread::sleep(Duration::from_millis(20));
            reply = acquired(session, &format!("'a', claim => '{}'", reply.0))?;
        }
        let (claim, token) = reply;
        record(EventKind::Granted {
            token: token.context("it is granted")?,
            weight: 1,
            capacity: 1,
        });
        record(EventKind::Releasing);
        let released = session.run(&format!("CALL leasehold.release('a', '{claim}')"));
        ensure!(released == ["t"], "{released:?}");
        record(EventKind::Released);
    }
    Ok(events)
}

/// Returns the claim, and the token if it is granted.
fn acquired(session: &mut PostgresSession, arguments: &str) -> Result<(String, Option<u64>)> {
    let reply = session.run(&format!("CALL leasehold.acquire({arguments})"));
    let mut columns = reply[0].split('|');
    let claim = columns.next().context("a claim")?.to_owned();
    let token = columns.next().with_context(|| format!("{reply:?}"))?;
    Ok((claim, token.parse().ok()))
}
