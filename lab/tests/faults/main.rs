//! What a store promises when processes, servers and wires fail: real processes, and one clock.
#![forbid(unsafe_code)]

mod chaos;
mod killed;
mod outage;
mod redis;
mod redlock;
mod stopped;
mod zookeeper;

use anyhow::Result;
use lab::{Event, Orders, Process, Site, Work};

const TAKER: &str = env!("CARGO_BIN_EXE_taker");

/// A holder and, behind it, `waiters` processes in line, in this order; each holds until told, and what the onlooker saw.
fn line_of(site: &Site, waiters: usize) -> Result<(Vec<Process>, Vec<Event>)> {
    let orders = Orders { work: Work::Told, ..Orders::default() };
    let mut holder = site.start(orders.clone())?;
    holder.hear_granted()?;
    let (mut line, mut seen) = (vec![holder], Vec::new());
    for _ in 0..waiters {
        let waiter = site.start(orders.clone())?;
        seen.push(site.see_waiting("a", waiter.hand())?);
        line.push(waiter);
    }
    Ok((line, seen))
}

/// Lets each hold in its turn and go; what they told. The first must hold already, or be about to.
fn run_down(line: Vec<Process>) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    for mut process in line {
        process.hear_granted()?;
        process.tell()?;
        events.extend(process.finish()?);
    }
    Ok(events)
}
