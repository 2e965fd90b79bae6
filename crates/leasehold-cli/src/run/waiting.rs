//! Waiting in line, and what is said meanwhile.

use std::convert::Infallible;
use std::future::pending;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use leasehold::{ClaimantInfo, Entry, Guard, Lock, LockState, Locks, Result};
use nix::sys::signal::Signal;
use tokio::time::{Instant, interval, sleep, timeout};

use super::signals::Signals;
use crate::commands::Run;
use crate::exit::print_error;
use crate::format::{
    Escaped, claimant_and_age, external_holder, ordinal, whole_seconds, whole_unit,
};

/// A wait that is over sooner is nothing to speak of.
const PROGRESS_DELAY: Duration = Duration::from_millis(500);

/// Our claim leaves in the background, and should have left before this process ends.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// How the waiting ended.
pub(crate) enum WaitOutcome {
    Granted(Guard),
    TimedOut,
    /// By a signal; the line has been left.
    Interrupted(Signal),
}

pub(crate) async fn wait(
    lock: &Lock,
    locks: &Locks,
    args: &Run,
    signals: &mut Signals,
) -> Result<WaitOutcome> {
    let begun = Instant::now();
    let waited = tokio::select! {
        biased;
        granted = grant(lock, args.wait) => granted?.map_or(WaitOutcome::TimedOut, WaitOutcome::Granted),
        signal = signals.next() => WaitOutcome::Interrupted(signal),
        never = show(locks, args) => match never {},
    };
    match &waited {
        WaitOutcome::Granted(guard) if is_plain(args) && begun.elapsed() >= PROGRESS_DELAY => {
            let (name, token, after) = (
                Escaped(&args.name),
                guard.token(),
                whole_seconds(begun.elapsed()),
            );
            print_error(format_args!("{name} granted after {after}, token {token}"));
        }
        WaitOutcome::Granted(_) => {}
        WaitOutcome::TimedOut => print_timed_out(locks, args).await,
        // Beyond that the store finds it out by itself.
        WaitOutcome::Interrupted(_) => drop(timeout(LEAVE_TIMEOUT, leasehold::drain()).await),
    }
    Ok(waited)
}

async fn grant(lock: &Lock, wait: Option<Duration>) -> Result<Option<Guard>> {
    match wait {
        None => lock.acquire().await.map(Some),
        Some(Duration::ZERO) => lock.try_acquire().await,
        Some(wait) => lock.try_acquire_for(wait).await,
    }
}

fn is_plain(args: &Run) -> bool {
    !args.quiet && !stderr().is_terminal()
}

/// Says where we stand for as long as it is polled.
async fn show(locks: &Locks, args: &Run) -> Infallible {
    if args.quiet {
        return pending().await;
    }
    sleep(PROGRESS_DELAY).await;
    if stderr().is_terminal() {
        return spin(locks, &args.name).await;
    }
    if let Some(text) = position_text(locks, &args.name).await {
        print_error(text);
    }
    pending().await
}

async fn spin(locks: &Locks, name: &str) -> Infallible {
    const FRAMES_PER_POLL: usize = 10;
    let spinner = Spinner::new();
    let mut turns = interval(Duration::from_secs(1) / 10);
    loop {
        if let Some(text) = position_text(locks, name).await {
            spinner.0.set_message(text);
        }
        for _ in 0..FRAMES_PER_POLL {
            turns.tick().await;
            spinner.0.tick();
        }
    }
}

/// Gone from the screen when dropped.
struct Spinner(ProgressBar);

impl Spinner {
    fn new() -> Self {
        let style = ProgressStyle::with_template("{spinner} {wide_msg}")
            .expect("both are words of the template");
        Self(ProgressBar::new_spinner().with_style(style))
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Our place in line, in words; `None` if the store does not say, which whoever waits for the grant will hear.
async fn position_text(locks: &Locks, name: &str) -> Option<String> {
    let lock_state = locks.inspect(name).await.ok()?;
    let held = holder_text(&lock_state);
    Some(match lock_state.waiters().position(is_own) {
        Some(ahead) => format!(
            "waiting for {}: {} in line, {held}",
            lock_state.name,
            ordinal(ahead + 1)
        ),
        None => format!("waiting for {}: {held}", lock_state.name),
    })
}

fn holder_text(lock_state: &LockState) -> String {
    let mut holders = lock_state.holders();
    let Some(first) = holders.next() else {
        return external_holder_text(lock_state);
    };
    let first = claimant_and_age(first);
    match holders.count() {
        0 => format!("held by {first}"),
        1 => format!("held by {first} and 1 other"),
        others => format!("held by {first} and {others} others"),
    }
}

fn external_holder_text(lock_state: &LockState) -> String {
    let known = lock_state.external_holders.first().map(external_holder);
    format!(
        "held outside the line by {}",
        known.unwrap_or_else(|| "a program unknown".to_owned())
    )
}

fn is_own(entry: &Entry) -> bool {
    ClaimantInfo::here("")
        .is_ok_and(|here| (&here.host, here.pid) == (&entry.info.host, entry.info.pid))
}

async fn print_timed_out(locks: &Locks, args: &Run) {
    if args.quiet {
        return;
    }
    let when = match args.wait {
        None | Some(Duration::ZERO) => "at once".to_owned(),
        Some(wait) => format!("within {}", whole_unit(wait)),
    };
    let held = locks.inspect(&args.name).await.ok().filter(|lock_state| {
        !lock_state.entries.is_empty() || !lock_state.external_holders.is_empty()
    });
    let held = held
        .map(|lock_state| format!(": {}", holder_text(&lock_state)))
        .unwrap_or_default();
    print_error(format_args!(
        "{} was not granted {when}{held}",
        Escaped(&args.name)
    ));
}
