//! The test with which articles on locks begin. A hundred clients at once each take the lock, read
//! a number from a file, wait a moment and write it back less one. From 101 the number must reach
//! 1, every time.
//!
//! Shows G-01.

use std::fs;

use anyhow::{Result, ensure};
use lab::backends::{file, redis};
use lab::{Api, HoldWork, Start, Testbed, WorkerConfig, check};
use lab_servers::Redis;

use crate::WORKER;

const RUNS: usize = 10;
const THREADS: u32 = 100;
/// Long enough that a client which does not respect the lock reads the old number.
const MOMENT_MICROS: u64 = 500;

#[test]
fn hundred_processes_count_down() -> Result<()> {
    count_down(THREADS, &WorkerConfig::default())
}

#[test]
fn hundred_threads_count_down() -> Result<()> {
    count_down(1, &one_process(Api::Blocking))
}

#[test]
fn hundred_tasks_count_down() -> Result<()> {
    count_down(1, &one_process(Api::Async))
}

/// A process with all clients.
fn one_process(api: Api) -> WorkerConfig {
    WorkerConfig {
        threads: THREADS,
        api,
        ..WorkerConfig::default()
    }
}

#[test]
fn hundred_processes_count_down_on_redis() -> Result<()> {
    let testbed = redis::start(WORKER, Redis::setup(), "crash-grace=2s")?;
    count_down_on(&testbed, RUNS / 2, THREADS, &WorkerConfig::default())?;
    redis::check_clean(&testbed, &WorkerConfig::default())
}

#[test]
fn hundred_tasks_and_threads_count_down_on_redis() -> Result<()> {
    let testbed = redis::start(WORKER, Redis::setup(), "crash-grace=2s")?;
    for api in [Api::Async, Api::Blocking] {
        let config = one_process(api);
        count_down_on(&testbed, RUNS / 2, 1, &config)?;
    }

    redis::check_clean(&testbed, &WorkerConfig::default())
}

/// Checks the test itself: workers without a common store have no lock, and the violation must be
/// found.
#[test]
fn broken_lock_is_detected_by_the_count_down() -> Result<()> {
    let testbed = file::start(WORKER)?;
    let apart = WorkerConfig {
        store: "memory:".to_owned(),
        cycles: 50,
        work: HoldWork::Sleep(1_000),
        ..WorkerConfig::default()
    };
    let events = all_at_once(&testbed, 8, &apart)?;
    let found = check::all(&events)
        .expect_err("eight holders at once")
        .to_string();
    ensure!(found.starts_with("more held at once than fits"), "{found}");

    Ok(())
}

fn count_down(processes: u32, config: &WorkerConfig) -> Result<()> {
    let testbed = file::start(WORKER)?;
    count_down_on(&testbed, RUNS, processes, config)?;
    file::check_clean(&testbed, &config.names)
}

fn count_down_on(
    testbed: &Testbed,
    runs: usize,
    processes: u32,
    config: &WorkerConfig,
) -> Result<()> {
    let mut events = Vec::new();
    for run in 0..runs {
        let file = testbed.scratch_file();
        fs::write(&file, (THREADS + 1).to_string())?;
        let work = HoldWork::CountDown {
            file: file.display().to_string(),
            micros: MOMENT_MICROS,
        };
        let config = WorkerConfig {
            start: Start::OnSignal,
            work,
            ..config.clone()
        };
        events.extend(all_at_once(testbed, processes, &config)?);
        let left = fs::read_to_string(&file)?;
        ensure!(left == "1", "run {run} ended at {left}");
    }
    let holds = check::all(&events)?;
    ensure!(
        holds.len() == runs * THREADS as usize,
        "{} holds",
        holds.len()
    );

    Ok(())
}

/// No worker begins before all are ready.
fn all_at_once(
    testbed: &Testbed,
    processes: u32,
    config: &WorkerConfig,
) -> Result<Vec<lab::Event>> {
    let mut workers = (0..processes)
        .map(|_| testbed.start(config.clone()))
        .collect::<Result<Vec<_>>>()?;

    if matches!(config.start, Start::OnSignal) {
        for worker in &mut workers {
            (0..config.threads).try_for_each(|_| worker.send_signal())?;
        }
    }
    let mut events = Vec::new();

    for worker in workers {
        events.extend(worker.finish()?);
    }
    Ok(events)
}
