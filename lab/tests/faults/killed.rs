//! Workers killed by SIGKILL at nearly the same time. The cells of the matrix kill one at a time.
//!
//! Shows G-02.

use anyhow::{Result, ensure};
use lab::backends::file;
use lab::{Event, HoldWork, Process, Testbed, WorkerConfig, check};

use crate::WORKER;

const ROUNDS: usize = 20;
const WAITERS: usize = 3;

#[test]
fn killed_holder_then_first_waiter_are_skipped() -> Result<()> {
    survive(&[0, 1])
}

#[test]
fn last_waiter_is_granted_after_all_others_die() -> Result<()> {
    survive(&[1, 0, 2])
}

/// Kills the holder and some waiters of a queue, counted from the holder. The others must hold in
/// turn.
fn survive(killed: &[usize]) -> Result<()> {
    let testbed = Testbed::new(WORKER)?;
    let mut events = Vec::new();
    for _ in 0..ROUNDS {
        let (mut queue, seen) = queue(&testbed)?;
        events.extend(seen);
        for &number in killed {
            queue[number].kill_now()?;
        }

        for (number, mut process) in queue.into_iter().enumerate() {
            if killed.contains(&number) {
                events.extend(process.end()?);
                continue;
            }
            process.wait_for_grant()?;
            process.send_signal()?;
            events.extend(process.finish()?);
        }
    }

    // Every survivor held, and the holder before it was killed. A waiter may have held too.
    let holds = check::all(&events)?.len();
    let least = ROUNDS * (2 + WAITERS - killed.len());
    ensure!(holds >= least, "{holds} holds instead of {least}");
    file::check_clean(&testbed, &["a".to_owned()])
}

/// Starts a holder and, behind it, queued processes. Each holds until it gets a signal. The events
/// are those of the observed waiters.
fn queue(testbed: &Testbed) -> Result<(Vec<Process>, Vec<Event>)> {
    let config = WorkerConfig {
        work: HoldWork::UntilSignal,
        ..WorkerConfig::default()
    };
    let mut holder = testbed.start(config.clone())?;
    holder.wait_for_grant()?;
    let mut queue = vec![holder];
    let mut seen = Vec::new();

    for _ in 0..WAITERS {
        let waiter = testbed.start(config.clone())?;
        seen.push(testbed.wait_until_waiting("a", waiter.first_thread())?);
        queue.push(waiter);
    }
    Ok((queue, seen))
}
