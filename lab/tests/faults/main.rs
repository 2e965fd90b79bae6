//! What a store promises when processes, servers and wires fail: real processes, and one clock.
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

/// A holder and, behind it, `waiters` processes in line, in this order; each holds until told, and what the onlooker saw.
fn lock_state_of(testbed: &Testbed, waiters: usize) -> Result<(Vec<Process>, Vec<Event>)> {
    let config = WorkerConfig {
        work: HoldWork::UntilSignal,
        ..WorkerConfig::default()
    };
    let mut holder = testbed.start(config.clone())?;
    holder.wait_for_grant()?;
    let (mut line, mut seen) = (vec![holder], Vec::new());
    for _ in 0..waiters {
        let waiter = testbed.start(config.clone())?;
        seen.push(testbed.wait_until_waiting("a", waiter.first_thread())?);
        line.push(waiter);
    }
    Ok((line, seen))
}

/// Lets each hold in its turn and go; what they told. The first must hold already, or be about to.
fn run_down(line: Vec<Process>) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    for mut process in line {
        process.wait_for_grant()?;
        process.send_signal()?;
        events.extend(process.finish()?);
    }
    Ok(events)
}
