//! Many cycles that leave nothing behind. `LAB_CYCLES` sets their number; `cargo xtask soak` runs a
//! million.
//!
//! Shows G-01.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab::backends::{file, redis};
use lab::soak::{Soak, SoakStart};
use lab::{Api, DEADLINE, Event, EventKind, Testbed, WorkerConfig, check};
use lab_servers::Redis;

use crate::WORKER;

const PROCESSES: u64 = 8;
const CYCLES: u64 = 10_000;
/// Each cycle takes one or two round trips.
const CYCLES_ON_REDIS: u64 = 4_000;
/// The average time of a cycle on a busy machine, at most.
const TIMEOUT_EACH: Duration = Duration::from_millis(5);

#[test]
fn soak_one_name() -> Result<()> {
    soak(&["a"])
}

#[test]
fn soak_three_names() -> Result<()> {
    soak(&["a", "b", "c"])
}

#[test]
fn soak_on_redis() -> Result<()> {
    let testbed = redis::start(WORKER, Redis::setup(), "crash-grace=2s")?;
    let config = soak_at(&testbed, CYCLES_ON_REDIS, &["a", "b", "c"])?;
    redis::check_clean(
        &testbed,
        &WorkerConfig {
            cycles: 1,
            ..config
        },
    )
}

/// A worker whose waits all time out is warm too, so that a leak of a timeout is detected.
#[test]
fn worker_without_a_hold_records_its_warm_usage() -> Result<()> {
    let testbed = file::start(WORKER)?;
    let held = testbed.run(testbed.locks().mutex("a").acquire())?;
    for api in [Api::Async, Api::Blocking] {
        let worker = testbed.start(WorkerConfig {
            api,
            cycles: 20,
            wait_micros: Some(1_000),
            ..WorkerConfig::default()
        })?;
        let events = worker.finish()?;
        let is_usage = |event: &&Event| matches!(event.kind, EventKind::ResourceUsage(_));
        assert_eq!(events.iter().filter(is_usage).count(), 2, "{api:?}");
        check::resource_leaks(&events)?;
    }
    testbed.run(held.release())?;
    Ok(())
}

fn soak(names: &[&str]) -> Result<()> {
    let testbed = file::start(WORKER)?;
    let config = soak_at(&testbed, CYCLES, names)?;
    file::check_clean(&testbed, &config.names)
}

fn soak_at(testbed: &Testbed, cycles: u64, names: &[&str]) -> Result<WorkerConfig> {
    let cycles = std::env::var("LAB_CYCLES").map_or(Ok(cycles), |cycles| cycles.parse())?;
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let begun = Instant::now();
    let config = WorkerConfig {
        names: names.clone(),
        cycles: cycles / PROCESSES,
        ..WorkerConfig::default()
    };
    let workers = (0..PROCESSES).map(|number| {
        testbed.start(WorkerConfig {
            api: api(number),
            ..config.clone()
        })
    });
    let workers = workers.collect::<Result<Vec<_>>>()?;
    let mut events = Vec::new();

    for worker in workers {
        let recorded = worker.finish_within(DEADLINE + TIMEOUT_EACH * u32::try_from(cycles)?)?;
        check::resource_leaks(&recorded)?;
        events.extend(recorded);
    }
    let took = begun.elapsed();
    let holds = check::all(&events)?;
    ensure!(
        holds.len() as u64 == config.cycles * PROCESSES,
        "{} holds",
        holds.len()
    );
    println!(
        "{} acquisitions by {PROCESSES} processes of {} names in {took:.1?}",
        holds.len(),
        names.len()
    );

    Ok(config)
}

fn api(number: u64) -> Api {
    if number.is_multiple_of(2) {
        Api::Async
    } else {
        Api::Blocking
    }
}

/// The second run goes on from the state of the first: another seed, and totals that add up.
#[test]
fn soak_under_faults_goes_on_from_its_state() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let soak = |start| Soak {
        store: "file".to_owned(),
        time: Duration::from_secs(3),
        state_file: folder.path().join("file.json"),
        start,
    };

    let first = soak(SoakStart::Resumed).run(WORKER)?;
    let second = soak(SoakStart::Resumed).run(WORKER)?;

    assert_eq!((first.rounds, first.next_seed), (1, 1), "{first}");
    assert_eq!((second.rounds, second.next_seed), (2, 2), "{second}");
    assert!(second.acquisitions > first.acquisitions, "{second}");
    assert!(first.faults > 0 && second.overlaps == 0, "{second}");
    Ok(())
}
