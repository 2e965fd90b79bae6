//! kill -9: the server sees the connection end, and the next one holds when the grace is over.

use std::time::Duration;

use anyhow::{Result, ensure};
use lab::{Event, Orders, Process, RedisSite, Work, check};

use super::site;
use crate::killed::survive;

const SETTINGS: &str = "crash-grace=1s";
const GRACE: Duration = Duration::from_secs(1);
/// How long after the grace the first in line may hold.
const NOTICED: Duration = Duration::from_millis(600);
/// How often the second waiter looks, in case the first is gone too.
const BEHIND: Duration = Duration::from_secs(4);
/// What a busy machine adds.
const SLACK: Duration = Duration::from_millis(700);

#[test]
fn the_next_holds_within_the_grace() -> Result<()> {
    let site = site(SETTINGS)?;
    for _ in 0..3 {
        let (holder, next) = (start(&site, 1)?, waiter(&site)?);
        check_time(took(holder, next)?, NOTICED)?;
    }
    site.check_clean(&Orders::default())
}

/// Whoever is subscribed to everything is not taken for a holder.
#[test]
fn a_monitor_of_all_channels_changes_nothing() -> Result<()> {
    let site = site(SETTINGS)?;
    let mut monitor = site.redis.connection();
    monitor.ask(&["PSUBSCRIBE", "*"])?;
    let (holder, next) = (start(&site, 1)?, waiter(&site)?);
    check_time(took(holder, next)?, NOTICED)
}

#[test]
fn the_one_behind_holds_when_the_next_in_line_was_killed_with_the_holder() -> Result<()> {
    let site = site(SETTINGS)?;
    let both = start(&site, 2)?;
    site.see_waiting("a", both.hand() + 1).or_else(|_| site.see_waiting("a", both.hand()))?;
    let next = waiter(&site)?;
    check_time(took(both, next)?, BEHIND + NOTICED)?;
    check_clean_in_the_end(&site)
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
fn of_all_but_the_last() -> Result<()> {
    survived(&[1, 0, 2])
}

fn survived(victims: &[usize]) -> Result<()> {
    let site = site("crash-grace=500ms")?;
    survive(&site, 2, victims)?;
    check_clean_in_the_end(&site)
}

fn check_clean_in_the_end(site: &RedisSite) -> Result<()> {
    let last = Orders::default();
    site.outlast_killed_waiters(&last.names)?;
    site.check_clean(&last)
}

/// Hands of one process, of which the first to come holds until it is killed.
fn start(site: &RedisSite, hands: u32) -> Result<Process> {
    let mut process = site.start(Orders { hands, work: Work::Watched(u64::MAX), ..Orders::default() })?;
    process.hear_granted()?;
    Ok(process)
}

fn waiter(site: &RedisSite) -> Result<Process> {
    let waiter = site.start(Orders::default())?;
    site.see_waiting("a", waiter.hand())?;
    Ok(waiter)
}

/// How long after the kill the other held.
fn took(mut holder: Process, mut next: Process) -> Result<Duration> {
    let killed = holder.kill_now()?;
    let granted = next.hear_granted()?.at;
    let events: Vec<Event> = [holder.end()?, next.finish()?].concat();
    check::all(&events)?;
    Ok(Duration::from_nanos(granted - killed))
}

fn check_time(took: Duration, noticed: Duration) -> Result<()> {
    println!("held {took:?} after the kill");
    ensure!(took >= GRACE, "only {took:?} after the kill");
    ensure!(took <= GRACE + noticed + SLACK, "as late as {took:?} after the kill");
    Ok(())
}
