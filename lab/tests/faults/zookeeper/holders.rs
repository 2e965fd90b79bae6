//! Holders and waiters that are killed or stopped.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};
use lab::{Orders, Trouble, What, Work, check};

use super::{SESSION, check_clean, site};
use crate::killed::survive;

/// A session may have a tick more, and servers look at each tick's end.
const TICK: Duration = Duration::from_millis(500);
/// What a busy machine adds.
const SLACK: Duration = Duration::from_millis(1500);

#[test]
fn killed_they_are_followed_within_the_session() -> Result<()> {
    let (server, site) = site()?;
    for _ in 0..3 {
        let mut holder = site.start(Orders { work: Work::Watched(u64::MAX), ..Orders::default() })?;
        holder.hear_granted()?;
        let mut next = site.start(Orders::default())?;
        let seen = site.see_waiting("a", next.hand())?;
        let killed = holder.kill_now()?;
        let took = Duration::from_nanos(next.hear_granted()?.at - killed);
        println!("held {took:?} after the kill");
        ensure!(took <= SESSION + TICK * 2 + SLACK, "as late as {took:?} after the kill");
        check::all(&[holder.end()?, next.finish()?, vec![seen]].concat())?;
    }
    check_clean(&server, &site)
}

#[test]
fn of_the_holder_and_the_next_in_line_the_others_hold_in_turn() -> Result<()> {
    survived(&[0, 1])
}

#[test]
fn of_a_waiter_in_the_middle_and_the_holder_the_others_hold_in_turn() -> Result<()> {
    survived(&[2, 0])
}

fn survived(victims: &[usize]) -> Result<()> {
    let (server, site) = site()?;
    survive(&site, 2, victims)?;
    check_clean(&server, &site)
}

/// Stopped for longer than its session it has lost its lock when it goes on, and the next has held meanwhile.
#[test]
fn stopped_for_longer_than_its_session_a_holder_has_lost() -> Result<()> {
    let (server, site) = site()?;
    let mut holder =
        site.start(Orders { work: Work::Watched(u64::MAX), trouble: Trouble::Endured, ..Orders::default() })?;
    holder.hear_granted()?;
    let mut next = site.start(Orders { work: Work::Told, ..Orders::default() })?;
    let seen = site.see_waiting("a", next.hand())?;
    holder.stop()?;
    next.hear_granted()?;
    holder.resume()?;
    holder.hear(|what| matches!(what, What::RanOut | What::Gone))?;
    next.tell()?;
    let holds = check::all(&[holder.finish()?, next.finish()?, vec![seen]].concat())?;
    ensure!(holds.len() == 2, "{holds:?}");
    check_clean(&server, &site)
}

/// Stopped for longer than its session a waiter has lost its place: the one behind it holds, and it gets in line anew.
#[test]
fn stopped_for_longer_than_its_session_a_waiter_is_passed_over() -> Result<()> {
    let (server, site) = site()?;
    let mut holder = site.start(Orders { work: Work::Told, ..Orders::default() })?;
    holder.hear_granted()?;
    let mut stopped = site.start(Orders::default())?;
    site.see_waiting("a", stopped.hand())?;
    let mut behind = site.start(Orders { work: Work::Told, ..Orders::default() })?;
    site.see_waiting("a", behind.hand())?;
    stopped.stop()?;
    holder.tell()?;
    behind.hear_granted()?;
    stopped.resume()?;
    // As long as it takes to see that it does not hold.
    sleep(TICK);
    behind.tell()?;
    stopped.hear_granted()?;
    let told = [holder.finish()?, stopped.finish()?, behind.finish()?].concat();
    ensure!(check::all(&told)?.len() == 3);
    check_clean(&server, &site)
}
