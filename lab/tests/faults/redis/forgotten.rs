//! What a server has forgotten is free, and so is what its clock says is over: exclusion ends with the server's data and time.
//! These tests show what happens then. The holder hears of it, and tokens still tell who came later.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::{Event, Hold, Orders, Process, RedisSite, Trouble, What, Work, check, holds, now};
use lab_servers::{Redis, Setup};
use leasehold::Guard;

use crate::TAKER;

const SETTINGS: &str = "crash-grace=1s";
const LEASE: Duration = Duration::from_secs(10);
/// What a busy machine adds.
const SLACK: Duration = Duration::from_secs(1);

#[test]
fn everything_deleted() -> Result<()> {
    let overlap = met(Redis::setup(), |site| drop(site.redis.command(&["FLUSHALL"])))?;
    ensure!(overlap < LEASE / 3 + SLACK, "two held for {overlap:?}");
    Ok(())
}

#[test]
fn restarted_without_data() -> Result<()> {
    let overlap = met(Redis::setup(), |site| site.redis.restart())?;
    ensure!(overlap < LEASE / 3 + SLACK, "two held for {overlap:?}");
    Ok(())
}

#[test]
fn a_clock_set_forward_beyond_the_lease() -> Result<()> {
    let overlap = met(Redis::setup().own_clock(), |site| site.redis.set_clock(15))?;
    ensure!(overlap < LEASE / 3 + SLACK, "two held for {overlap:?}");
    Ok(())
}

/// A hold that is judged by its connection is renewed in its lock every third of its lease, so it has two thirds left.
#[test]
fn a_clock_set_forward_by_less_than_is_left_of_the_lease() -> Result<()> {
    let site = site(Redis::setup().own_clock())?;
    let holder = holder(&site, Duration::from_secs(30))?;
    site.redis.set_clock(15);
    let waited = site.run(site.locks().mutex("a").try_acquire_for(Duration::from_secs(2)))?;
    ensure!(waited.is_none(), "it was free");
    let first = only(&holder.kill()?)?;
    ensure!(first.until < u64::MAX, "it held until it was killed");
    Ok(())
}

/// Tokens go on rising, and a crash is noticed in the same time.
#[test]
fn a_clock_set_back() -> Result<()> {
    let site = site(Redis::setup().own_clock())?;
    let mut holder = holder(&site, Duration::from_secs(30))?;
    site.redis.set_clock(-3_600);
    let waiter = site.start(Orders::default())?;
    site.see_waiting("a", waiter.hand())?;
    let killed = holder.kill_now()?;
    let told = [holder.end()?, waiter.finish()?].concat();
    let holds = check::all(&told)?;
    let next = holds.last().context("the waiter held")?;
    ensure!(Duration::from_nanos(next.granted - killed) < Duration::from_secs(3), "the clock took part");
    site.check_clean(&Orders::default())
}

fn site(setup: Setup) -> Result<RedisSite> {
    RedisSite::start(TAKER, setup, SETTINGS)
}

/// A process that holds until it finds that it does not.
fn holder(site: &RedisSite, lease: Duration) -> Result<Process> {
    let (lease, work) = (Some(u64::try_from(lease.as_millis())?), Work::Watched(u64::MAX));
    let mut holder = site.start(Orders { lease, work, trouble: Trouble::Endured, ..Orders::default() })?;
    holder.hear_granted()?;
    Ok(holder)
}

/// Lets the server forget a holder. Another is granted at once, with a larger token, and the holder hears of it; for how long
/// both held.
fn met(setup: Setup, forget: impl FnOnce(&mut RedisSite)) -> Result<Duration> {
    let mut site = site(setup)?;
    let mut holder = holder(&site, LEASE)?;
    forget(&mut site);
    let second = site.run(site.locks().mutex("a").try_acquire())?.context("what was forgotten is free")?;
    let granted = now();
    holder.hear(|what| matches!(what, What::Gone | What::RanOut))?;
    let first = only(&holder.finish()?)?;
    let overlap = Duration::from_nanos(first.until.saturating_sub(granted));
    println!("two held for {overlap:?}");
    check_later(&first, &second)?;
    site.run(second.release())?;
    Ok(overlap)
}

fn check_later(first: &Hold, second: &Guard) -> Result<()> {
    second.check()?;
    ensure!(second.token().get() > first.token, "token {} after {first}", second.token());
    Ok(())
}

fn only(told: &[Event]) -> Result<Hold> {
    let holds = holds(told)?;
    ensure!(holds.len() == 1, "{holds:?}");
    Ok(holds[0])
}
