//! The test that articles on locks begin with: a hundred at once each take the lock, read a number from a file, wait a
//! moment and write it back less one. From 101 it must end at 1, every time.

use std::fs;

use anyhow::{Result, ensure};
use lab::{Api, Opens, Orders, RedisSite, Site, Start, Work, check};
use lab_servers::Redis;

use crate::TAKER;

const RUNS: usize = 20;
const HANDS: u32 = 100;
/// Long enough that whoever is let in beside the holder reads the old number.
const MOMENT_MICROS: u64 = 500;

#[test]
fn a_hundred_processes() -> Result<()> {
    count_down(HANDS, &Orders::default())
}

#[test]
fn a_hundred_threads() -> Result<()> {
    count_down(1, &Orders { hands: HANDS, ..Orders::default() })
}

#[test]
fn a_hundred_threads_each_with_its_own_opening() -> Result<()> {
    count_down(1, &Orders { hands: HANDS, opens: Opens::Each, ..Orders::default() })
}

#[test]
fn a_hundred_tasks() -> Result<()> {
    count_down(1, &Orders { hands: HANDS, api: Api::Async, ..Orders::default() })
}

#[test]
fn a_hundred_tasks_each_with_its_own_opening() -> Result<()> {
    count_down(1, &Orders { hands: HANDS, api: Api::Async, opens: Opens::Each, ..Orders::default() })
}

#[test]
fn a_hundred_processes_on_redis() -> Result<()> {
    let site = RedisSite::start(TAKER, Redis::setup(), "crash-grace=2s")?;
    count_down_on(&site, RUNS / 4, HANDS, &Orders::default())?;
    site.check_clean(&Orders::default())
}

#[test]
fn a_hundred_tasks_and_threads_on_redis() -> Result<()> {
    let site = RedisSite::start(TAKER, Redis::setup(), "crash-grace=2s")?;
    for api in [Api::Async, Api::Blocking] {
        count_down_on(&site, RUNS / 4, 1, &Orders { hands: HANDS, api, ..Orders::default() })?;
    }
    site.check_clean(&Orders::default())
}

/// The proof of the proof: takers that share no store are no lock, and must be found out.
#[test]
fn a_lock_that_excludes_nobody_is_found_out() -> Result<()> {
    let site = Site::new(TAKER)?;
    let apart = Orders { store: "memory:".to_owned(), cycles: 50, work: Work::Micros(1_000), ..Orders::default() };
    let events = all_at_once(&site, 8, &Orders { start: Start::AtOnce, ..apart })?;
    let found = check::all(&events).expect_err("eight holders at once").to_string();
    ensure!(found.starts_with("more held at once than fits"), "{found}");
    Ok(())
}

fn count_down(processes: u32, orders: &Orders) -> Result<()> {
    let site = Site::new(TAKER)?;
    count_down_on(&site, RUNS, processes, orders)?;
    site.check_clean(&orders.names)
}

fn count_down_on(site: &Site, runs: usize, processes: u32, orders: &Orders) -> Result<()> {
    let mut events = Vec::new();
    for run in 0..runs {
        let file = site.note();
        fs::write(&file, (HANDS + 1).to_string())?;
        let work = Work::CountDown { file: file.display().to_string(), micros: MOMENT_MICROS };
        let orders = Orders { start: Start::Told, work, ..orders.clone() };
        events.extend(all_at_once(site, processes, &orders)?);
        let left = fs::read_to_string(&file)?;
        ensure!(left == "1", "run {run} ended at {left}");
    }
    let holds = check::all(&events)?;
    ensure!(holds.len() == runs * HANDS as usize, "{} holds", holds.len());
    Ok(())
}

/// Nobody begins before everybody is there.
fn all_at_once(site: &Site, processes: u32, orders: &Orders) -> Result<Vec<lab::Event>> {
    let takers: Result<Vec<_>> = (0..processes).map(|_| site.start_quiet(orders.clone())).collect();
    let mut takers = takers?;
    if matches!(orders.start, Start::Told) {
        for taker in &mut takers {
            (0..orders.hands).try_for_each(|_| taker.tell())?;
        }
    }
    let mut events = Vec::new();
    for taker in takers {
        events.extend(taker.finish()?);
    }
    Ok(events)
}
