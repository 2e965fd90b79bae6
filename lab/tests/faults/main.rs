//! What a store guarantees when processes, servers and the network fail. The tests use real
//! processes and one clock.
#![forbid(unsafe_code)]

mod chaos;
mod killed;
mod outage;
mod redis;
mod redlock;
mod stopped;
mod zookeeper;

use anyhow::Result;
use lab::{Event, HoldWork, Process, Testbed, WorkerConfig};

const WORKER: &str = env!("CARGO_BIN_EXE_worker");

/// Starts a holder and, behind it, `waiters` queued processes. Each holds until it gets a signal.
/// Also returns the events of the observed waiters.
fn queue_of(testbed: &Testbed, waiters: usize) -> Result<(Vec<Process>, Vec<Event>)> {
    let config = WorkerConfig {
        work: HoldWork::UntilSignal,
        ..WorkerConfig::default()
    };
    let mut holder = testbed.start(config.clone())?;
    holder.wait_for_grant()?;
    let mut queue = vec![holder];
    let mut seen = Vec::new();

    for _ in 0..waiters {
        let waiter = testbed.start(config.clone())?;
        seen.push(testbed.wait_until_waiting("a", waiter.first_thread())?);
        queue.push(waiter);
    }
    Ok((queue, seen))
}

/// Lets each process hold and release in turn, and returns their events. The first must hold
/// already, or be granted next.
fn run_down(queue: Vec<Process>) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    for mut process in queue {
        process.wait_for_grant()?;
        process.send_signal()?;
        events.extend(process.finish()?);
    }
    Ok(events)
}
