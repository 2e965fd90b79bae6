//! Waiting in line, and what is said meanwhile.

use std::convert::Infallible;
use std::future::pending;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use leasehold::{Entry, Guard, Line, Lock, Locks, Note, Result};
use nix::sys::signal::Signal;
use tokio::time::{Instant, interval, sleep, timeout};

use super::signals::Signals;
use crate::commands::Run;
use crate::exit::say;
use crate::words::{Plain, as_term, ordinal, stranger, who_and_how_long, whole_seconds};

/// A wait that is over sooner is nothing to speak of.
const WORTH_SAYING: Duration = Duration::from_millis(500);

/// Our claim leaves in the background, and should have left before this process ends.
const LEAVING_MAX: Duration = Duration::from_secs(1);

/// How the waiting ended.
pub(crate) enum Waited {
    Granted(Guard),
    TooLate,
    /// By a signal; the line has been left.
    Called(Signal),
}

pub(crate) async fn wait(lock: &Lock, locks: &Locks, terms: &Run, signals: &mut Signals) -> Result<Waited> {
    let begun = Instant::now();
    let waited = tokio::select! {
        biased;
        granted = grant(lock, terms.wait) => granted?.map_or(Waited::TooLate, Waited::Granted),
        signal = signals.next() => Waited::Called(signal),
        never = show(locks, terms) => match never {},
    };
    match &waited {
        Waited::Granted(guard) if is_plain(terms) && begun.elapsed() >= WORTH_SAYING => {
            let (name, token, after) = (Plain(&terms.name), guard.token(), whole_seconds(begun.elapsed()));
            say(format_args!("{name} granted after {after}, token {token}"));
        }
        Waited::Granted(_) => {}
        Waited::TooLate => say_too_late(locks, terms).await,
        // Beyond that the store finds it out by itself.
        Waited::Called(_) => drop(timeout(LEAVING_MAX, leasehold::drain()).await),
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

fn is_plain(terms: &Run) -> bool {
    !terms.quiet && !stderr().is_terminal()
}

/// Says where we stand for as long as it is polled.
async fn show(locks: &Locks, terms: &Run) -> Infallible {
    if terms.quiet {
        return pending().await;
    }
    sleep(WORTH_SAYING).await;
    if stderr().is_terminal() {
        return spin(locks, &terms.name).await;
    }
    if let Some(text) = place(locks, &terms.name).await {
        say(text);
    }
    pending().await
}

async fn spin(locks: &Locks, name: &str) -> Infallible {
    const TURNS_A_LOOK: usize = 10;
    let spinner = Spinner::new();
    let mut turns = interval(Duration::from_secs(1) / 10);
    loop {
        if let Some(text) = place(locks, name).await {
            spinner.0.set_message(text);
        }
        for _ in 0..TURNS_A_LOOK {
            turns.tick().await;
            spinner.0.tick();
        }
    }
}

/// Gone from the screen when dropped.
struct Spinner(ProgressBar);

impl Spinner {
    fn new() -> Self {
        let style = ProgressStyle::with_template("{spinner} {wide_msg}").expect("both are words of the template");
        Self(ProgressBar::new_spinner().with_style(style))
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Our place in line, in words; `None` if the store does not say, which whoever waits for the grant will hear.
async fn place(locks: &Locks, name: &str) -> Option<String> {
    let line = locks.look(name).await.ok()?;
    let held = held_by(&line);
    Some(match line.waiters().position(is_ours) {
        Some(ahead) => format!("waiting for {}: {} in line, {held}", line.name, ordinal(ahead + 1)),
        None => format!("waiting for {}: {held}", line.name),
    })
}

fn held_by(line: &Line) -> String {
    let mut holders = line.holders();
    let Some(first) = holders.next() else { return held_outside(line) };
    let first = who_and_how_long(first);
    match holders.count() {
        0 => format!("held by {first}"),
        1 => format!("held by {first} and 1 other"),
        others => format!("held by {first} and {others} others"),
    }
}

fn held_outside(line: &Line) -> String {
    let known = line.strangers.first().map(stranger);
    format!("held outside the line by {}", known.unwrap_or_else(|| "a program unknown".to_owned()))
}

fn is_ours(entry: &Entry) -> bool {
    Note::here("").is_ok_and(|here| (&here.host, here.pid) == (&entry.note.host, entry.note.pid))
}

async fn say_too_late(locks: &Locks, terms: &Run) {
    if terms.quiet {
        return;
    }
    let when = match terms.wait {
        None | Some(Duration::ZERO) => "at once".to_owned(),
        Some(wait) => format!("within {}", as_term(wait)),
    };
    let held = locks.look(&terms.name).await.ok().filter(|line| !line.entries.is_empty() || !line.strangers.is_empty());
    let held = held.map(|line| format!(": {}", held_by(&line))).unwrap_or_default();
    say(format_args!("{} was not granted {when}{held}", Plain(&terms.name)));
}
