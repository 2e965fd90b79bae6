//! Claims are granted in order of arrival.
//!
//! Shows G-05, L3, L4.

use anyhow::{Result, ensure};
use lab::backends::{file, redis};
use lab::{
    Api, Event, EventKind, HoldWork, LockKind, Process, Start, Testbed, WorkerConfig, check,
};
use lab_servers::Redis;

use crate::WORKER;

#[test]
fn waiters_of_eight_processes_are_granted_in_fifo_order() -> Result<()> {
    let testbed = Testbed::new(WORKER)?;
    served_in_order(&testbed)?;
    file::check_clean(&testbed, &["a".to_owned()])
}

#[test]
fn waiters_on_redis_are_granted_in_fifo_order() -> Result<()> {
    let testbed = redis::start(WORKER, Redis::setup(), "crash-grace=2s")?;
    served_in_order(&testbed)?;
    redis::check_clean(&testbed, &WorkerConfig::default())
}

fn served_in_order(testbed: &Testbed) -> Result<()> {
    const PROCESSES: usize = 8;
    const WAITERS: usize = 64;
    let guard = testbed.run(testbed.locks().mutex("a").acquire())?;
    let mut workers = (0..PROCESSES)
        .map(|number| testbed.start(waiters(number, WAITERS / PROCESSES)))
        .collect::<Result<Vec<_>>>()?;
    let mut events = Vec::new();
    let mut arrived = Vec::new();

    for arrival in 0..WAITERS {
        let thread = arrive(&mut workers[arrival % PROCESSES])?;
        events.push(testbed.wait_until_waiting("a", thread)?);
        arrived.push(thread);
    }
    testbed.run(guard.release())?;

    for worker in workers {
        events.extend(worker.finish()?);
    }
    let mut holds = check::all(&events)?;
    holds.sort_unstable_by_key(|hold| hold.token);
    let served: Vec<u32> = holds.iter().map(|hold| hold.thread).collect();
    ensure!(
        served == arrived,
        "arrived: {arrived:?}\nserved: {served:?}"
    );

    Ok(())
}

/// A process whose threads each acquire the lock once after a signal.
fn waiters(number: usize, threads: usize) -> WorkerConfig {
    let api = if number.is_multiple_of(2) {
        Api::Async
    } else {
        Api::Blocking
    };
    WorkerConfig {
        api,
        threads: u32::try_from(threads).expect("a test has few threads"),
        start: Start::OnSignal,
        ..WorkerConfig::default()
    }
}

/// Lets one more thread of a process request the lock, and returns its number.
fn arrive(worker: &mut Process) -> Result<u32> {
    worker.send_signal()?;
    Ok(worker
        .wait_for(|kind| *kind == EventKind::Requested)?
        .thread)
}

#[test]
fn later_readers_wait_behind_a_writer() -> Result<()> {
    let testbed = Testbed::new(WORKER)?;
    let recorded = |kind| WorkerConfig {
        kind,
        work: HoldWork::UntilSignal,
        ..WorkerConfig::default()
    };
    let mut early = [
        testbed.start(recorded(LockKind::Reader))?,
        testbed.start(recorded(LockKind::Reader))?,
    ];

    for reader in &mut early {
        reader.wait_for_grant()?;
    }
    let mut writer = testbed.start(recorded(LockKind::Writer))?;
    let mut events = vec![testbed.wait_until_waiting("a", writer.first_thread())?];
    let mut late = [
        testbed.start(recorded(LockKind::Reader))?,
        testbed.start(recorded(LockKind::Reader))?,
    ];

    for reader in &late {
        events.push(testbed.wait_until_waiting("a", reader.first_thread())?);
    }
    events.extend(release(early)?);
    writer.wait_for_grant()?;
    events.extend(release([writer])?);

    for reader in &mut late {
        reader.wait_for_grant()?;
    }
    events.extend(release(late)?);
    ensure!(check::all(&events)?.len() == 5);
    file::check_clean(&testbed, &["a".to_owned()])
}

/// Signals holders to release, and waits for their end.
fn release<const N: usize>(mut holders: [Process; N]) -> Result<Vec<Event>> {
    holders.iter_mut().try_for_each(Process::send_signal)?;
    let mut events = Vec::new();
    for holder in holders {
        events.extend(holder.finish()?);
    }
    Ok(events)
}

/// The readers' holds overlap without a gap. With flock(2) alone they would starve the writer.
#[test]
fn overlapping_readers_do_not_starve_a_writer() -> Result<()> {
    let testbed = Testbed::new(WORKER)?;
    let reader = WorkerConfig {
        kind: LockKind::Reader,
        cycles: u64::MAX,
        work: HoldWork::Sleep(5_000),
        ..WorkerConfig::default()
    };
    let mut readers = (0..4)
        .map(|_| testbed.start(reader.clone()))
        .collect::<Result<Vec<_>>>()?;

    for reader in &mut readers {
        reader.wait_for_grant()?;
    }
    let writer = testbed.start(WorkerConfig {
        kind: LockKind::Writer,
        cycles: 50,
        ..WorkerConfig::default()
    })?;
    let mut events = writer.finish()?;

    for reader in readers {
        events.extend(reader.kill()?);
    }
    let written = check::all(&events)?
        .into_iter()
        .filter(|hold| hold.weight == hold.capacity)
        .count();
    ensure!(written == 50, "{written} writes");

    file::check_clean(&testbed, &["a".to_owned()])
}
