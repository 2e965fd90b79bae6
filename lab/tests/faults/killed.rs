//! kill -9.

use anyhow::{Result, ensure};
use lab::{Site, check};

use crate::{TAKER, line_of, run_down};

const ROUNDS: usize = 20;
const WAITERS: usize = 3;

#[test]
fn of_the_holder() -> Result<()> {
    survived(&[0])
}

#[test]
fn of_the_next_in_line() -> Result<()> {
    survived(&[1])
}

#[test]
fn of_the_holder_and_the_next_in_line() -> Result<()> {
    survived(&[0, 1])
}

#[test]
fn of_the_next_in_line_and_the_holder() -> Result<()> {
    survived(&[1, 0])
}

#[test]
fn of_a_waiter_in_the_middle_and_the_holder() -> Result<()> {
    survived(&[2, 0])
}

#[test]
fn of_all_but_the_last() -> Result<()> {
    survived(&[1, 0, 2])
}

fn survived(victims: &[usize]) -> Result<()> {
    let site = Site::new(TAKER)?;
    survive(&site, ROUNDS, victims)?;
    site.check_clean(&["a".to_owned()])
}

/// Kills some of a line, counted from the holder, at nearly the same moment: the others hold in their turn.
pub(crate) fn survive(site: &Site, rounds: usize, victims: &[usize]) -> Result<()> {
    let mut events = Vec::new();
    for _ in 0..rounds {
        let (mut line, seen) = line_of(site, WAITERS)?;
        events.extend(seen);
        for &victim in victims {
            line[victim].kill_now()?;
        }
        let (mut survivors, mut dead) = (Vec::new(), Vec::new());
        for (number, process) in line.into_iter().enumerate() {
            if victims.contains(&number) { dead.push(process) } else { survivors.push(process) }
        }
        if !victims.contains(&0) {
            // The holder was heard already when it was granted.
            let mut holder = survivors.remove(0);
            holder.tell()?;
            events.extend(holder.finish()?);
        }
        events.extend(run_down(survivors)?);
        for process in dead {
            events.extend(process.end()?);
        }
    }
    // Every survivor held, and perhaps one that was about to be killed.
    let holds = check::all(&events)?.len();
    let least = rounds * (1 + WAITERS - victims.iter().filter(|&&victim| victim > 0).count());
    ensure!(holds >= least, "{holds} holds instead of {least}");
    Ok(())
}
