//! Connections that break, freeze or go deaf while a lock is held.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::{Event, Orders, Process, RedisSite, Work, check};
use lab_servers::Wire;
use leasehold::Locks;

use super::site;

const SETTINGS: &str = "crash-grace=1s";

/// A client of the site's server behind a wire.
fn behind(site: &RedisSite, wire: &Wire, settings: &str) -> Result<Locks> {
    Ok(site.run(leasehold::open(&format!("{}?{settings}", wire.url_of("redis"))))?)
}

/// Each time shorter than the grace, for many graces.
#[test]
fn killed_by_the_server_they_cost_no_lock() -> Result<()> {
    let site = site(SETTINGS)?;
    let mut holder = site.start(Orders { work: Work::Watched(6_000_000), ..Orders::default() })?;
    holder.hear_granted()?;
    let waiter = site.start(Orders::default())?;
    site.see_waiting("a", waiter.hand())?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        for kind in ["pubsub", "normal"] {
            site.redis.command(&["CLIENT", "KILL", "TYPE", kind]);
        }
        // The pace of the faults.
        sleep(Duration::from_millis(400));
    }
    let told = [holder.finish()?, waiter.finish()?].concat();
    ensure!(check::all(&told)?.len() == 2);
    site.check_clean(&Orders::default())
}

/// A connection on which nothing arrives any more, while a new one would do, costs no lock.
#[test]
fn gone_deaf_they_cost_no_lock() -> Result<()> {
    let site = site(SETTINGS)?;
    let wire = Wire::to(site.redis.address());
    let locks = behind(&site, &wire, "crash-grace=2s")?;
    let guard = site.run(locks.mutex("a").acquire())?;
    wire.deafen();
    let lost = site.run(async { tokio::time::timeout(Duration::from_secs(5), guard.lost()).await });
    ensure!(lost.is_err(), "{lost:?}");
    Ok(site.run(guard.release())?)
}

/// Whoever asks by another connection notices that the one by which grants are told is deaf.
#[test]
fn a_deaf_inbox_is_replaced() -> Result<()> {
    let site = site(SETTINGS)?;
    let wire = Wire::to(site.redis.address());
    let ours = leasehold::blocking::open(&format!("{}?{SETTINGS}", wire.url_of("redis")))?;
    wire.deafen();
    let begun = Instant::now();
    while handed_over(&site, &ours)? > Duration::from_millis(200) {
        ensure!(begun.elapsed() < Duration::from_secs(15), "grants are still found by looking");
    }
    Ok(())
}

/// How long after a release the one who waited held.
fn handed_over(site: &RedisSite, ours: &leasehold::blocking::Locks) -> Result<Duration> {
    let held = site.run(site.locks().mutex("a").acquire())?;
    let waiting = ours.mutex("a").label("1");
    let waiter = std::thread::spawn(move || waiting.acquire().map(|guard| (guard, Instant::now())));
    site.see_waiting("a", 1)?;
    let released = Instant::now();
    site.run(held.release())?;
    let (guard, granted) = waiter.join().expect("a wait does not panic")?;
    guard.release()?;
    Ok(granted - released)
}

/// The server does not see that it is frozen out, so its lease decides.
#[test]
fn frozen_they_cost_the_lock_before_another_has_it() -> Result<()> {
    cut_off(|wire| wire.freeze(true))
}

/// The server sees it gone, so the grace decides.
#[test]
fn cut_for_long_they_cost_the_lock_before_another_has_it() -> Result<()> {
    cut_off(|wire| {
        wire.refuse(true);
        wire.cut();
    })
}

#[test]
fn deaf_for_long_they_cost_the_lock_before_another_has_it() -> Result<()> {
    cut_off(|wire| wire.lose_replies(true))
}

fn cut_off(fault: impl Fn(&Wire)) -> Result<()> {
    let site = site(SETTINGS)?;
    let wire = Wire::to(site.redis.address());
    let mut holder = held_behind(&site, &wire)?;
    let mut next = site.start(Orders { lease: Some(3_000), ..Orders::default() })?;
    let mut told: Vec<Event> = vec![site.see_waiting("a", next.hand())?];
    fault(&wire);
    next.hear_granted()?;
    wire.freeze(false);
    wire.lose_replies(false);
    wire.refuse(false);
    holder.hear(|what| matches!(what, lab::What::RanOut))?;
    told.extend(holder.finish()?);
    told.extend(next.finish()?);
    let holds = check::all(&told)?;
    let first = holds.first().context("the first holds")?;
    ensure!(holds.len() == 2 && first.until < u64::MAX);
    site.check_clean(&Orders::default())
}

fn held_behind(site: &RedisSite, wire: &Wire) -> Result<Process> {
    let mut holder = site.start(Orders {
        store: format!("{}?{SETTINGS}", wire.url_of("redis")),
        lease: Some(3_000),
        trouble: lab::Trouble::Endured,
        work: Work::Watched(u64::MAX),
        ..Orders::default()
    })?;
    holder.hear_granted()?;
    Ok(holder)
}
