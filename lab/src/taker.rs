//! What the `taker` program does: take locks as ordered, and tell of it on stdout.

mod hold;
mod tasks;
mod tell;
mod threads;

use std::fs;
use std::io;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::{Api, Event, Orders, Start, What, Work};
use tell::tell;

/// After so many cycles of its first hand a process has opened all it needs.
const WARM: u64 = 16;
/// How often descriptors are counted, a millisecond apart.
const GLANCES: usize = 50;

/// Does what is ordered.
///
/// # Errors
/// The first that the library or the system answers.
pub fn run(orders: &Orders) -> Result<()> {
    match orders.api {
        Api::Async => tasks::run(orders),
        Api::Blocking => threads::run(orders),
    }
}

/// Waits until a cycle may begin.
fn begin(orders: &Orders) -> Result<()> {
    match orders.start {
        Start::AtOnce => Ok(()),
        Start::Told => be_told(),
    }
}

/// What is done while holding.
fn work(orders: &Orders) -> Result<()> {
    match &orders.work {
        Work::Nothing => Ok(()),
        Work::Micros(micros) | Work::Watched(micros) => {
            sleep(Duration::from_micros(*micros));
            Ok(())
        }
        Work::Told => be_told(),
        Work::CountDown { file, micros } => count_down(file, *micros),
    }
}

fn be_told() -> Result<()> {
    let told = io::stdin().read_line(&mut String::new())?;
    ensure!(told > 0, "stdin ended before the word came");
    Ok(())
}

fn count_down(file: &str, micros: u64) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    let number: i64 = text.trim().parse().with_context(|| format!("{text:?} is not a number"))?;
    sleep(Duration::from_micros(micros));
    Ok(fs::write(file, (number - 1).to_string())?)
}

/// Tells how many descriptors are open once the first hand is warm.
fn tell_when_warm(orders: &Orders, hand: u32, cycle: u64) -> Result<()> {
    if hand == orders.first_hand && cycle == WARM { tell_descriptors(orders) } else { Ok(()) }
}

/// The least of a number of counts, as something may be in use for a moment in the background.
fn tell_descriptors(orders: &Orders) -> Result<()> {
    let mut least = usize::MAX;
    for _ in 0..GLANCES {
        least = least.min(fs::read_dir("/proc/self/fd")?.count());
        sleep(Duration::from_millis(1));
    }
    tell(Event { at: crate::now(), hand: orders.first_hand, name: 0, what: What::Descriptors(least) })
}
