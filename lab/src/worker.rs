//! The `worker` program: it acquires locks as its configuration says and records events on stdout.

mod crash_points;
mod hold;
mod job;
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
use stats_alloc::INSTRUMENTED_SYSTEM;
use tokio::runtime::Handle;

use crate::{Api, Event, EventKind, HoldWork, OnError, ResourceUsage, WorkerConfig, check};
use recorder::write_event;

/// After this number of cycles of its first thread a process has opened everything it needs.
pub(crate) const WARM: u64 = 16;
/// The resource usage of the warm process.
static FIRST: OnceLock<ResourceUsage> = OnceLock::new();
/// How long an abandoned request may take to end.
const OVER_MAX: Duration = Duration::from_secs(15);
/// The pause between two attempts to open a store.
const RETRY: Duration = Duration::from_millis(20);
/// The pause after a refusal, because a store refuses immediately.
const REFUSAL_PAUSE: Duration = Duration::from_millis(2);
/// How often the resource usage is read, with pauses of a millisecond.
const CHECKS: usize = 50;

/// The path of the `worker` program beside the running program.
///
/// # Errors
/// If the program is missing.
pub fn program() -> Result<String> {
    let program = std::env::current_exe()?.with_file_name("worker");
    let path = program.display().to_string();
    ensure!(
        program.exists(),
        "{path} is missing: cargo build -p lab --bins"
    );
    Ok(path)
}

/// Does what the configuration says.
///
/// # Errors
/// The first error of the library or the system.
pub fn run(config: &WorkerConfig) -> Result<()> {
    sleep(Duration::from_micros(config.open_after));
    match config.api {
        Api::Async => tasks::run(config),
        Api::Blocking => threads::run(config),
    }
}

/// Whether the worker retries a store that cannot be opened now. It does so where faults are
/// injected. Where stores refuse requests, they also refuse to be opened, for various reasons.
fn waits_for_store(config: &WorkerConfig, error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<leasehold::Error>();
    match config.on_error {
        OnError::Abort => false,
        OnError::Retry => error.is_some_and(leasehold::Error::is_unavailable),
        OnError::RetryAll => error.is_some(),
    }
}

/// Does the work of a hold.
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
    ensure!(recorded > 0, "stdin ended before the signal");
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

/// Records the resource usage once the first thread is warm. Every cycle of a thread ends here, also
/// one without a hold.
fn record_warm_usage(config: &WorkerConfig, thread: u32, cycle: u64) -> Result<()> {
    if thread != config.first_thread || cycle != WARM {
        return Ok(());
    }
    let warm = least_usage()?;
    // Only the first thread records the usage, and only once.
    let _ = FIRST.set(warm);
    record_usage(config, warm)
}

/// Records the resource usage at the end. Requests to unreachable servers may take a while to end.
fn record_final_usage(config: &WorkerConfig) -> Result<()> {
    let begun = Instant::now();
    let mut usage = least_usage()?;
    while FIRST
        .get()
        .is_some_and(|first| !check::fits(first, &usage, &config.resource_slack))
        && begun.elapsed() < OVER_MAX
    {
        sleep(Duration::from_millis(20));
        usage = least_usage()?;
    }
    record_usage(config, usage)
}

/// The least of several readings, because background work uses resources for a moment.
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
        memory: allocated()? / 1024,
    })
}

/// The allocated bytes, and those that other threads have freed during the call. Only a program that
/// installs the counting allocator knows them.
fn allocated() -> Result<usize> {
    // The counters are read one after the other. In this order, the difference is never too small.
    let freed = INSTRUMENTED_SYSTEM.stats().bytes_deallocated;
    let allocated = INSTRUMENTED_SYSTEM.stats().bytes_allocated;
    ensure!(allocated > 0, "this program does not count its memory");
    Ok(allocated - freed)
}

/// The number in the line of a process's status that begins with `key`.
pub(crate) fn number(status: &str, key: &str) -> Result<usize> {
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let number = line
        .and_then(|line| line.split_whitespace().next())
        .with_context(|| format!("no {key}"))?;
    Ok(number.parse()?)
}
