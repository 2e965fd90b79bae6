//! kill -9: how soon the next live waiter holds.

use anyhow::{Context, Result};
use lab::raw::Raw;
use lab::report::{Report, Samples};
use lab::{Orders, Process, Site, What, Work};

const ROUNDS: usize = 50;
const RAW: &str = env!("CARGO_BIN_EXE_raw");

fn main() -> Result<()> {
    let site = Site::new(env!("CARGO_BIN_EXE_taker"))?;
    let mut samples: [Samples; 4] = Default::default();
    for _ in 0..ROUNDS {
        samples[0].add(holder_killed(&site)?);
        samples[1].add(next_killed(&site)?);
        samples[2].add(both_killed(&site)?);
        samples[3].add(flock_holder_killed(&site)?);
    }
    let [holder, next, both, flock] = &samples;
    let limit = "blocking flock(2), holder killed";
    let mut report = Report::new("crash");
    report.add("holder killed, to the next holds", holder, limit, flock);
    report.add("next in line killed and holder releases, to the one behind holds", next, limit, flock);
    report.add("next in line and holder killed, to the one behind holds", both, limit, flock);
    report.finish()
}

fn holder_killed(site: &Site) -> Result<u64> {
    let mut line = line_of(site, 1)?;
    let killed = line[0].kill_now()?;
    served_after(&mut line, killed)
}

fn next_killed(site: &Site) -> Result<u64> {
    let mut line = line_of(site, 2)?;
    line[1].kill_now()?;
    line[0].tell()?;
    let released = line[0].hear(|what| *what == What::Releasing)?.at;
    served_after(&mut line, released)
}

fn both_killed(site: &Site) -> Result<u64> {
    let mut line = line_of(site, 2)?;
    line[1].kill_now()?;
    let killed = line[0].kill_now()?;
    served_after(&mut line, killed)
}

/// A holder and waiters behind it, seen in line.
fn line_of(site: &Site, waiters: usize) -> Result<Vec<Process>> {
    let orders = Orders { work: Work::Told, ..Orders::default() };
    let mut holder = site.start(orders.clone())?;
    holder.hear_granted()?;
    let mut line = vec![holder];
    for _ in 0..waiters {
        let waiter = site.start(orders.clone())?;
        site.see_waiting("a", waiter.hand())?;
        line.push(waiter);
    }
    Ok(line)
}

/// How long after a moment the last of a line holds.
fn served_after(line: &mut [Process], moment: u64) -> Result<u64> {
    let last = line.last_mut().context("a line has an end")?;
    // Its next-to-last ancestor may be granted for a moment before it dies; the last is what counts.
    Ok(last.hear_granted()?.at - moment)
}

fn flock_holder_killed(site: &Site) -> Result<u64> {
    let file = site.note();
    let mut holder = Raw::start(RAW, "locker", &file)?;
    holder.tell()?;
    holder.hear()?;
    let mut next = Raw::start(RAW, "locker", &file)?;
    next.tell()?;
    next.see_waiting()?;
    let killed = holder.kill()?;
    Ok(next.hear()? - killed)
}
