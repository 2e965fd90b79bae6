//! What the `taker` program does: take locks as ordered, and tell of it on stdout.

mod hold;
mod nested;
mod steps;
mod tasks;
mod tell;
mod threads;

use std::fs;
use std::io;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::runtime::Handle;

use crate::{Api, Event, Orders, Start, Trouble, Uses, What, Work, check};
pub(crate) use steps::store_at;
use tell::tell;

/// After so many cycles of its first hand a process has opened all it needs.
const WARM: u64 = 16;
/// What it used when it was warm.
static FIRST: OnceLock<Uses> = OnceLock::new();
/// How long a question may be under way that nobody waits for any more.
const OVER_MAX: Duration = Duration::from_secs(15);
/// Between two tries to open a store.
const RETRY: Duration = Duration::from_millis(20);
/// How often it is counted what is in use, a millisecond apart.
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

/// Tells why there is no guard, and lets a moment pass: a store that refuses does so at once.
fn refused(teller: tell::Teller<'_>) -> Result<()> {
    teller.refused()?;
    sleep(Duration::from_millis(2));
    Ok(())
}

/// Whether a store that cannot be opened now is tried again: one that faults are done to is.
fn waits_for_store(orders: &Orders, error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<leasehold::Error>();
    orders.trouble != Trouble::Ends && error.is_some_and(leasehold::Error::is_unavailable)
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

/// Tells what the process uses once the first hand is warm.
fn tell_when_warm(orders: &Orders, hand: u32, cycle: u64) -> Result<()> {
    if hand != orders.first_hand || cycle != WARM {
        return Ok(());
    }
    let warm = least_uses()?;
    // Only one hand is the first, and tells it once.
    let _ = FIRST.set(warm);
    tell_uses(orders, warm)
}

/// Tells what it uses when all is done. What was asked of servers that do not answer may take a while to be over.
fn tell_in_the_end(orders: &Orders) -> Result<()> {
    let begun = Instant::now();
    let mut uses = least_uses()?;
    while FIRST.get().is_some_and(|first| !check::fits(first, &uses, orders.spare)) && begun.elapsed() < OVER_MAX {
        sleep(Duration::from_millis(20));
        uses = least_uses()?;
    }
    tell_uses(orders, uses)
}

/// The least of a number of counts, as something may be in use for a moment in the background.
fn least_uses() -> Result<Uses> {
    let mut least = uses()?;
    for _ in 1..GLANCES {
        sleep(Duration::from_millis(1));
        let uses = uses()?;
        least = Uses {
            descriptors: least.descriptors.min(uses.descriptors),
            threads: least.threads.min(uses.threads),
            tasks: least.tasks.min(uses.tasks),
            memory: least.memory.min(uses.memory),
        };
    }
    Ok(least)
}

fn tell_uses(orders: &Orders, uses: Uses) -> Result<()> {
    tell(Event { at: crate::now(), hand: orders.first_hand, name: 0, what: What::Uses(uses) })
}

fn uses() -> Result<Uses> {
    let status = fs::read_to_string("/proc/self/status")?;
    Ok(Uses {
        descriptors: fs::read_dir("/proc/self/fd")?.count(),
        threads: number(&status, "Threads:")?,
        tasks: Handle::try_current().map_or(0, |runtime| runtime.metrics().num_alive_tasks()),
        memory: number(&status, "VmRSS:")?,
    })
}

/// The number in a line that begins with `key`.
fn number(status: &str, key: &str) -> Result<usize> {
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|line| line.split_whitespace().next()).with_context(|| format!("no {key}"))?;
    Ok(number.parse()?)
}
