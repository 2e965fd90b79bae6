//! From one process that releases to another that waits.

use std::fs;
use std::io::Write;

use anyhow::Result;
use lab::raw::Raw;
use lab::report::{Report, Samples};
use lab::{Api, Orders, Process, Site, Start, What, Work, now};

const ROUNDS: usize = 1_000;
const RAW: &str = env!("CARGO_BIN_EXE_raw");

fn main() -> Result<()> {
    let site = Site::new(env!("CARGO_BIN_EXE_taker"))?;
    let (mut tasks, mut threads) = (ours(&site, "tasks", Api::Async)?, ours(&site, "threads", Api::Blocking)?);
    let file = site.note();
    let mut lockers = [Raw::start(RAW, "locker", &file)?, Raw::start(RAW, "locker", &file)?];
    lockers[0].tell()?;
    lockers[0].hear()?;
    let watched = site.note();
    fs::write(&watched, "")?;
    let mut sleeper = Raw::start(RAW, "sleeper", &watched)?;
    sleeper.hear()?;
    let mut samples: [Samples; 4] = Default::default();
    for _ in 0..ROUNDS {
        samples[0].add(hand_over(&site, "tasks", &mut tasks)?);
        samples[1].add(hand_over(&site, "threads", &mut threads)?);
        samples[2].add(flock_hand_over(&mut lockers)?);
        samples[3].add(wake(&mut sleeper, &mut fs::File::options().append(true).open(&watched)?)?);
    }
    let [tasks, threads, flock, inotify] = &samples;
    let mut report = Report::new("handover");
    report.add("file store, async", tasks, "inotify wake-up", inotify);
    report.add("file store, blocking", threads, "inotify wake-up", inotify);
    report.add("file store, async", tasks, "blocking flock(2)", flock);
    report.add("file store, blocking", threads, "blocking flock(2)", flock);
    report.finish()
}

/// Two takers, of which the first holds.
fn ours(site: &Site, name: &str, api: Api) -> Result<[Process; 2]> {
    let (start, work, names) = (Start::Told, Work::Told, vec![name.to_owned()]);
    let orders = Orders { names, api, cycles: u64::MAX, start, work, ..Orders::default() };
    let mut takers = [site.start(orders.clone())?, site.start(orders)?];
    takers[0].tell()?;
    takers[0].hear_granted()?;
    Ok(takers)
}

fn hand_over(site: &Site, name: &str, takers: &mut [Process; 2]) -> Result<u64> {
    takers.swap(0, 1);
    let [next, holder] = takers;
    next.tell()?;
    site.see_waiting(name, next.hand())?;
    holder.tell()?;
    let begun = holder.hear(|what| *what == What::Releasing)?.at;
    Ok(next.hear_granted()?.at - begun)
}

fn flock_hand_over(lockers: &mut [Raw; 2]) -> Result<u64> {
    lockers.swap(0, 1);
    let [next, holder] = lockers;
    next.tell()?;
    next.see_waiting()?;
    holder.tell()?;
    let begun = holder.hear()?;
    Ok(next.hear()? - begun)
}

fn wake(sleeper: &mut Raw, file: &mut fs::File) -> Result<u64> {
    let begun = now();
    file.write_all(b"x")?;
    Ok(sleeper.hear()? - begun)
}
