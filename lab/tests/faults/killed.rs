//! Workers killed by SIGKILL.
//!
//! Shows G-02.

use anyhow::{Result, ensure};
use lab::backends::file;
use lab::{Process, Testbed, check};

use crate::{WORKER, queue_of, run_down};

const ROUNDS: usize = 20;
const WAITERS: usize = 3;

#[test]
fn killed_holder_is_followed() -> Result<()> {
    survived(&[0])
}

#[test]
fn killed_first_waiter_is_skipped() -> Result<()> {
    survived(&[1])
}

#[test]
fn killed_holder_then_first_waiter_are_skipped() -> Result<()> {
    survived(&[0, 1])
}

#[test]
fn killed_first_waiter_then_holder_are_skipped() -> Result<()> {
    survived(&[1, 0])
}

#[test]
fn killed_middle_waiter_then_holder_are_skipped() -> Result<()> {
    survived(&[2, 0])
}

#[test]
fn last_waiter_is_granted_after_all_others_die() -> Result<()> {
    survived(&[1, 0, 2])
}

fn survived(killed: &[usize]) -> Result<()> {
    let testbed = Testbed::new(WORKER)?;
    survive(&testbed, ROUNDS, killed)?;
    file::check_clean(&testbed, &["a".to_owned()])
}

/// Kills some processes of a queue, counted from the holder, at nearly the same time. The others
/// must hold in turn.
pub(crate) fn survive(testbed: &Testbed, rounds: usize, killed: &[usize]) -> Result<()> {
    let mut events = Vec::new();
    for _ in 0..rounds {
        let (mut queue, seen) = queue_of(testbed, WAITERS)?;
        events.extend(seen);
        for &number in killed {
            queue[number].kill_now()?;
        }
        let (dead, survivors): (Vec<_>, Vec<_>) = queue
            .into_iter()
            .enumerate()
            .partition(|(number, _)| killed.contains(number));
        let mut survivors: Vec<Process> = survivors.into_iter().map(|(_, it)| it).collect();
        if !killed.contains(&0) {
            // The grant of the holder was already received.
            let mut holder = survivors.remove(0);
            holder.send_signal()?;
            events.extend(holder.finish()?);
        }
        events.extend(run_down(survivors)?);
        for (_, process) in dead {
            events.extend(process.end()?);
        }
    }
    // Every survivor held, and perhaps a process that was about to be killed.
    let holds = check::all(&events)?.len();
    let least = rounds * (1 + WAITERS - killed.iter().filter(|&&number| number > 0).count());
    ensure!(holds >= least, "{holds} holds instead of {least}");

    Ok(())
}
