//! What the `taker` program does: take locks as ordered, and tell of it on stdout.

mod crash_points;
mod hold;
mod nested;
mod recorder;
mod tasks;
mod threads;

use std::fs;
use std::io;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::runtime::Handle;

use crate::{Api, Event, EventKind, HoldWork, OnError, ResourceUsage, Start, WorkerConfig, check};
pub(crate) use crash_points::store_at;
use recorder::write_event;

/// After so many cycles of its first hand a process has opened all it needs.
const WARM: u64 = 16;
/// What it used when it was warm.
static FIRST: OnceLock<ResourceUsage> = OnceLock::new();
/// How long a question may be under way that nobody waits for any more.
const OVER_MAX: Duration = Duration::from_secs(15);
/// Between two tries to open a store.
const RETRY: Duration = Duration::from_millis(20);
/// How often it is counted what is in use, a millisecond apart.
const CHECKS: usize = 50;

/// Does what is ordered.
///
/// # Errors
/// The first that the library or the system answers.
pub fn run(config: &WorkerConfig) -> Result<()> {
    match config.api {
        Api::Async => tasks::run(config),
        Api::Blocking => threads::run(config),
    }
}

/// Tells why there is no guard, and lets a moment pass: a store that refuses does so at once.
fn refused(recorder: recorder::Recorder<'_>) -> Result<()> {
    recorder.refused()?;
    sleep(Duration::from_millis(2));
    Ok(())
}

/// Whether a store that cannot be opened now is tried again: one that faults are done to is.
fn waits_for_store(config: &WorkerConfig, error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<leasehold::Error>();
    config.on_error != OnError::Abort && error.is_some_and(leasehold::Error::is_unavailable)
}

/// Waits until a cycle may begin.
fn begin(config: &WorkerConfig) -> Result<()> {
    match config.start {
        Start::Immediately => Ok(()),
        Start::OnSignal => wait_for_signal(),
    }
}

/// What is done while holding.
fn work(config: &WorkerConfig) -> Result<()> {
    match &config.work {
        HoldWork::Nothing => Ok(()),
        HoldWork::Sleep(micros) | HoldWork::CheckedSleep(micros) => {
            sleep(Duration::from_micros(*micros));
            Ok(())
        }
        HoldWork::UntilSignal => wait_for_signal(),
        HoldWork::CountDown { file, micros } => count_down(file, *micros),
    }
}

fn wait_for_signal() -> Result<()> {
    let recorded = io::stdin().read_line(&mut String::new())?;
    ensure!(recorded > 0, "stdin ended before the word came");
    Ok(())
}

fn count_down(file: &str, micros: u64) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    let number: i64 = text
        .trim()
        .parse()
        .with_context(|| format!("{text:?} is not a number"))?;
    sleep(Duration::from_micros(micros));
    Ok(fs::write(file, (number - 1).to_string())?)
}

/// Tells what the process uses once the first hand is warm.
fn record_warm_usage(config: &WorkerConfig, thread: u32, cycle: u64) -> Result<()> {
    if thread != config.first_thread || cycle != WARM {
        return Ok(());
    }
    let warm = least_usage()?;
    // Only one hand is the first, and tells it once.
    let _ = FIRST.set(warm);
    record_usage(config, warm)
}

/// Tells what it uses when all is done. What was asked of servers that do not answer may take a while to be over.
fn record_final_usage(config: &WorkerConfig) -> Result<()> {
    let begun = Instant::now();
    let mut usage = least_usage()?;
    while FIRST
        .get()
        .is_some_and(|first| !check::fits(first, &usage, config.resource_slack))
        && begun.elapsed() < OVER_MAX
    {
        sleep(Duration::from_millis(20));
        usage = least_usage()?;
    }
    record_usage(config, usage)
}

/// The least of a number of counts, as something may be in use for a moment in the background.
fn least_usage() -> Result<ResourceUsage> {
    let mut least = usage()?;
    for _ in 1..CHECKS {
        sleep(Duration::from_millis(1));
        let usage = usage()?;
        least = ResourceUsage {
            descriptors: least.descriptors.min(usage.descriptors),
            threads: least.threads.min(usage.threads),
            tasks: least.tasks.min(usage.tasks),
            memory: least.memory.min(usage.memory),
        };
    }
    Ok(least)
}

fn record_usage(config: &WorkerConfig, usage: ResourceUsage) -> Result<()> {
    write_event(Event {
        at: crate::now(),
        thread: config.first_thread,
        name: 0,
        kind: EventKind::ResourceUsage(usage),
    })
}

fn usage() -> Result<ResourceUsage> {
    let status = fs::read_to_string("/proc/self/status")?;
    Ok(ResourceUsage {
        descriptors: fs::read_dir("/proc/self/fd")?.count(),
        threads: number(&status, "Threads:")?,
        tasks: Handle::try_current().map_or(0, |runtime| runtime.metrics().num_alive_tasks()),
        memory: number(&status, "VmRSS:")?,
    })
}

/// The number in a line that begins with `key`.
fn number(status: &str, key: &str) -> Result<usize> {
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let number = line
        .and_then(|line| line.split_whitespace().next())
        .with_context(|| format!("no {key}"))?;
    Ok(number.parse()?)
}
