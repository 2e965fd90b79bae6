//! First come, first served.

use anyhow::{Result, ensure};
use lab::{Api, Event, Face, Orders, Process, RedisSite, Site, Start, What, Work, check};
use lab_servers::Redis;

use crate::TAKER;

#[test]
fn sixty_four_waiters_of_eight_processes_are_served_in_order_of_arrival() -> Result<()> {
    let site = Site::new(TAKER)?;
    served_in_order(&site)?;
    site.check_clean(&["a".to_owned()])
}

#[test]
fn on_redis_too() -> Result<()> {
    let site = RedisSite::start(TAKER, Redis::setup(), "crash-grace=2s")?;
    served_in_order(&site)?;
    site.check_clean(&Orders::default())
}

fn served_in_order(site: &Site) -> Result<()> {
    const PROCESSES: usize = 8;
    const WAITERS: usize = 64;
    let guard = site.run(site.locks().mutex("a").acquire())?;
    let takers: Result<Vec<_>> =
        (0..PROCESSES).map(|number| site.start(waiters(number, WAITERS / PROCESSES))).collect();
    let mut takers = takers?;
    let mut events = Vec::new();
    let mut arrived = Vec::new();
    for arrival in 0..WAITERS {
        let hand = arrive(&mut takers[arrival % PROCESSES])?;
        events.push(site.see_waiting("a", hand)?);
        arrived.push(hand);
    }
    site.run(guard.release())?;
    for taker in takers {
        events.extend(taker.finish()?);
    }
    let mut holds = check::all(&events)?;
    holds.sort_unstable_by_key(|hold| hold.token);
    let served: Vec<u32> = holds.iter().map(|hold| hold.hand).collect();
    ensure!(served == arrived, "arrived: {arrived:?}\nserved: {served:?}");
    Ok(())
}

/// A process whose hands each take the lock once, when told.
fn waiters(number: usize, hands: usize) -> Orders {
    let api = if number.is_multiple_of(2) { Api::Async } else { Api::Blocking };
    Orders { api, hands: u32::try_from(hands).expect("a few"), start: Start::Told, ..Orders::default() }
}

/// Lets one more hand of a process ask; which.
fn arrive(taker: &mut Process) -> Result<u32> {
    taker.tell()?;
    Ok(taker.hear(|what| *what == What::Asked)?.hand)
}

#[test]
fn readers_that_come_later_wait_behind_a_writer() -> Result<()> {
    let site = Site::new(TAKER)?;
    let told = |face| Orders { face, work: Work::Told, ..Orders::default() };
    let mut early = [site.start(told(Face::Reader))?, site.start(told(Face::Reader))?];
    for reader in &mut early {
        reader.hear_granted()?;
    }
    let mut writer = site.start(told(Face::Writer))?;
    let mut events = vec![site.see_waiting("a", writer.hand())?];
    let mut late = [site.start(told(Face::Reader))?, site.start(told(Face::Reader))?];
    for reader in &late {
        events.push(site.see_waiting("a", reader.hand())?);
    }
    events.extend(let_go(early)?);
    writer.hear_granted()?;
    events.extend(let_go([writer])?);
    for reader in &mut late {
        reader.hear_granted()?;
    }
    events.extend(let_go(late)?);
    ensure!(check::all(&events)?.len() == 5);
    site.check_clean(&["a".to_owned()])
}

/// Tells holders to release, and waits until they have.
fn let_go<const N: usize>(mut holders: [Process; N]) -> Result<Vec<Event>> {
    holders.iter_mut().try_for_each(Process::tell)?;
    let mut events = Vec::new();
    for holder in holders {
        events.extend(holder.finish()?);
    }
    Ok(events)
}

/// Holds that overlap without a gap, as flock(2) alone would let them starve a writer.
#[test]
fn four_overlapping_readers_do_not_keep_a_writer_out() -> Result<()> {
    let site = Site::new(TAKER)?;
    let reader = Orders { face: Face::Reader, cycles: u64::MAX, work: Work::Micros(5_000), ..Orders::default() };
    let readers: Result<Vec<_>> = (0..4).map(|_| site.start(reader.clone())).collect();
    let mut readers = readers?;
    for reader in &mut readers {
        reader.hear_granted()?;
    }
    let writer = site.start(Orders { face: Face::Writer, cycles: 50, ..Orders::default() })?;
    let mut events = writer.finish()?;
    for reader in readers {
        events.extend(reader.kill()?);
    }
    let written = check::all(&events)?.into_iter().filter(|hold| hold.weight == hold.capacity).count();
    ensure!(written == 50, "{written} writes");
    site.check_clean(&["a".to_owned()])
}
