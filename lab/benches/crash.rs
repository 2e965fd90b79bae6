//! `kill -9`: the time until the next live waiter holds the lock.

use anyhow::{Context, Result};
use lab::raw;
use lab::report::{Report, Samples};
use lab::{EventKind, HoldWork, Process, Testbed, WorkerConfig};

const ROUNDS: usize = 50;
const RAW: &str = env!("CARGO_BIN_EXE_raw");

fn main() -> Result<()> {
    let testbed = Testbed::new(env!("CARGO_BIN_EXE_worker"))?;
    let mut samples: [Samples; 4] = Default::default();
    for _ in 0..ROUNDS {
        samples[0].add(holder_killed(&testbed)?);
        samples[1].add(next_killed(&testbed)?);
        samples[2].add(both_killed(&testbed)?);
        samples[3].add(flock_holder_killed(&testbed)?);
    }

    let [holder, next, both, flock] = &samples;
    let limit = "blocking flock(2), holder killed";
    let mut report = Report::new("crash");
    report.add("holder killed, to the next holds", holder, limit, flock);
    report.add(
        "next in line killed and holder releases, to the one behind holds",
        next,
        limit,
        flock,
    );
    report.add(
        "next in line and holder killed, to the one behind holds",
        both,
        limit,
        flock,
    );
    report.finish()
}

fn holder_killed(testbed: &Testbed) -> Result<u64> {
    let mut line = lock_state_of(testbed, 1)?;
    let killed = line[0].kill_now()?;
    served_after(&mut line, killed)
}

fn next_killed(testbed: &Testbed) -> Result<u64> {
    let mut line = lock_state_of(testbed, 2)?;
    line[1].kill_now()?;
    line[0].send_signal()?;
    let released = line[0].wait_for(|kind| *kind == EventKind::Releasing)?.at;
    served_after(&mut line, released)
}

fn both_killed(testbed: &Testbed) -> Result<u64> {
    let mut line = lock_state_of(testbed, 2)?;
    line[1].kill_now()?;
    let killed = line[0].kill_now()?;
    served_after(&mut line, killed)
}

/// Starts a holder, then waiters that the testbed has seen in the queue.
fn lock_state_of(testbed: &Testbed, waiters: usize) -> Result<Vec<Process>> {
    let config = WorkerConfig {
        work: HoldWork::UntilSignal,
        ..WorkerConfig::default()
    };
    let mut holder = testbed.start(config.clone())?;
    holder.wait_for_grant()?;

    let mut line = vec![holder];
    for _ in 0..waiters {
        let waiter = testbed.start(config.clone())?;
        testbed.wait_until_waiting("a", waiter.first_thread())?;
        line.push(waiter);
    }

    Ok(line)
}

/// Returns the time from `moment` until the last process of the queue holds.
fn served_after(line: &mut [Process], moment: u64) -> Result<u64> {
    let last = line.last_mut().context("the queue is not empty")?;
    // The process before the last may be granted for a moment before its process ends.
    // Only the grant of the last process counts.
    Ok(last.wait_for_grant()?.at - moment)
}

fn flock_holder_killed(testbed: &Testbed) -> Result<u64> {
    let file = testbed.scratch_file();
    let mut holder = raw::start(RAW, "locker", &file)?;
    holder.send_line("")?;
    holder.receive_line()?;
    let mut next = raw::start(RAW, "locker", &file)?;
    next.send_line("")?;
    raw::wait_until_waiting(&next)?;
    let killed = holder.kill()?;
    Ok(next.receive::<u64>()? - killed)
}
