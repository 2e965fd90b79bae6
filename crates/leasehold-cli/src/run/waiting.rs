//! Waits in the queue, and reports the progress meanwhile.

use std::convert::Infallible;
use std::future::pending;
use std::io::{self, IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use leasehold::{CrashRelease, Error, Guard, Lock, LockState, Locks, MultiGuard};
use nix::sys::signal::Signal;
use tokio::time::{Instant, interval, sleep, timeout};

use super::child::reap_as_init;
use super::own_script;
use super::retry::Retry;
use super::signals::Signals;
use super::stores::same_store;
use crate::commands::{BusyExit, LockOptions, Origin};
use crate::exit::{Exit, is_stderr_writable, print_error};
use crate::format::{
    Escaped, NameArgument, claimant_and_age, is_missing, is_own, ordinal, whole_seconds, whole_unit,
};
use crate::locking::Request;
use crate::process_state::is_stopped;

/// The wait after which progress is reported. A shorter wait is not reported.
const PROGRESS_DELAY: Duration = Duration::from_millis(500);

/// The time between two progress lines of a long wait, so a log shows that the job still waits.
const LINE_INTERVAL: Duration = Duration::from_secs(60);

/// The pause between two attempts to read the queue of an unavailable store.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// How long COMMAND waits to learn why the hold before has ended.
const END_REPLY_MAX: Duration = Duration::from_millis(250);

/// How long to wait until the claims have left their queues. They leave in the background.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// The outcome of acquiring one lock, or all locks of a hold.
pub(crate) type Acquired<G = MultiGuard> = Result<G, NotGranted>;

/// Why a lock was not granted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NotGranted {
    TimedOut,
    /// A signal arrived. The claims leave their queues.
    Interrupted(Signal),
}

impl NotGranted {
    pub(crate) fn exit(self, busy: BusyExit) -> Exit {
        match self {
            Self::TimedOut => busy.exit(),
            Self::Interrupted(signal) => Exit::by_signal(signal),
        }
    }
}

/// Opens stores until a signal ends leasehold. If no store is open then, the claim that was entered
/// meanwhile has left.
///
/// # Cancel safety
/// Dropping the future makes the claim leave.
pub(crate) async fn open<S>(
    opening: impl Future<Output = leasehold::Result<S>>,
    signals: &mut Signals,
) -> anyhow::Result<Acquired<S>> {
    let opened = tokio::select! {
        biased;
        opened = opening => opened.map(Ok),
        signal = signals.next_to_end() => Ok(Err(NotGranted::Interrupted(signal?))),
    };
    if !matches!(opened, Ok(Ok(_))) {
        leave_queues().await;
    }
    Ok(opened?)
}

/// Acquires all names in all stores of the request, or none of them.
///
/// # Cancel safety
/// Dropping the future leaves the queues and releases granted locks.
pub(crate) async fn acquire(
    request: Request<'_>,
    retry: &mut Retry,
    signals: &mut Signals,
) -> anyhow::Result<Acquired> {
    let locks = request.locks();
    let acquired = locks.acquire_each(async |next| {
        let lock = tokio::select! {
            biased;
            lock = retry.until_available(|| next.checked()) => lock.map_err(explain_repetition)?,
            signal = interruption(request, signals) => return Ok(Err(NotGranted::Interrupted(signal?))),
        };
        wait(lock, request, retry, signals).await
    });

    let acquired = acquired.await;
    if !matches!(acquired, Ok(Ok(_))) {
        leave_queues().await;
    }
    acquired
}

/// Names the options of a lock that occurs twice. The names of a request differ, so its stores do
/// not.
fn explain_repetition(error: Error) -> Error {
    if error.is_invalid() {
        return same_store();
    }
    error
}

/// Waits until the claims have left their queues.
pub(crate) async fn leave_queues() {
    // After this time the store itself detects that the client has ended.
    drop(timeout(LEAVE_TIMEOUT, leasehold::drain()).await);
}

async fn wait(
    lock: &Lock,
    request: Request<'_>,
    retry: &mut Retry,
    signals: &mut Signals,
) -> anyhow::Result<Acquired<Guard>> {
    let options = request.options;
    let begun = Instant::now();
    let waiting_since = retry.begun;
    let acquired = tokio::select! {
        biased;
        granted = retry.acquire(lock) => match granted? {
            Ok(guard) => Ok(guard),
            Err(refused) => {
                // It may be the number of a slot that was not granted in time.
                let origin = request.origin_of(lock);
                print_timed_out(lock.locks(), refused.name.as_str(), options, origin).await;
                Err(NotGranted::TimedOut)
            }
        },
        signal = interruption(request, signals) => Err(NotGranted::Interrupted(signal?)),
        never = reap_as_init() => match never? {},
        never = show_progress(lock, options, waiting_since) => match never {},
    };

    if let Ok(guard) = &acquired {
        print_granted(lock, guard, begun.elapsed(), options).await;
    }
    Ok(acquired)
}

/// Waits for a signal that ends the wait. A candidate waits for its whole life, and its sender of
/// USR1 or USR2 means COMMAND, which does not run now.
async fn interruption(request: Request<'_>, signals: &mut Signals) -> io::Result<Signal> {
    if request.options.is_candidate() {
        signals.next_end_request().await
    } else {
        signals.next_to_end().await
    }
}

async fn print_granted(lock: &Lock, guard: &Guard, waited: Duration, options: &LockOptions) {
    if options.quiet || has_spinner() || waited < PROGRESS_DELAY {
        return;
    }

    let name = Escaped(guard.name());
    let token = guard.token();
    let waited = whole_seconds(waited);
    let before = end_before(lock, guard).await.unwrap_or_default();
    print_error(format_args!(
        "{name} granted after {waited}, token {token}{before}"
    ));
}

/// Returns why the hold before has ended, if the store knows and replies soon.
async fn end_before(lock: &Lock, guard: &Guard) -> Option<String> {
    let inspecting = lock.locks().inspect(lock.name());
    let lock_state = timeout(END_REPLY_MAX, inspecting).await.ok()?.ok()?;
    let ended = lock_state.ended_before(guard.token())?;
    Some(format!(
        "; token {} before it: {}",
        ended.token, ended.reason
    ))
}

/// Reports the queue position: continuously on a terminal, once a minute elsewhere.
async fn show_progress(lock: &Lock, options: &LockOptions, since: Instant) -> Infallible {
    if options.quiet {
        return pending().await;
    }

    sleep(PROGRESS_DELAY).await;
    let text = async || position_text(lock.locks(), lock.name(), since, options.wait).await;
    if has_spinner() {
        return spin(text).await;
    }
    report_lines(text, LINE_INTERVAL, print_error).await
}

/// Whether standard error is a terminal that can replace a line.
fn has_spinner() -> bool {
    stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Reports the queue position at once, and again after each interval.
async fn report_lines(
    text: impl AsyncFn() -> Option<String>,
    interval: Duration,
    mut report: impl FnMut(String),
) -> Infallible {
    loop {
        if let Some(text) = text().await {
            report(text);
            sleep(interval).await;
        } else {
            sleep(RETRY_INTERVAL.min(interval)).await;
        }
    }
}

async fn spin(text: impl AsyncFn() -> Option<String>) -> Infallible {
    const FRAMES_PER_POLL: usize = 10;

    let spinner = Spinner::new();
    let mut frames = interval(Duration::from_secs(1) / 10);

    loop {
        if let Some(text) = text().await {
            spinner.draw(|bar| bar.set_message(text));
        }
        for _ in 0..FRAMES_PER_POLL {
            frames.tick().await;
            spinner.draw(ProgressBar::tick);
        }
    }
}

/// A spinner that disappears from the screen when it is dropped.
struct Spinner(ProgressBar);

impl Spinner {
    fn new() -> Self {
        let style = ProgressStyle::with_template("{spinner} {wide_msg}")
            .expect("both are words of the template");
        Self(ProgressBar::new_spinner().with_style(style))
    }

    /// Draws, unless the terminal is stopped by Ctrl-S. A write would then stop the wait, too.
    fn draw(&self, draw: impl FnOnce(&ProgressBar)) {
        if is_stderr_writable(Duration::ZERO) {
            draw(&self.0);
        }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        if !is_stderr_writable(Duration::ZERO) {
            self.0.set_draw_target(ProgressDrawTarget::hidden());
        }
        self.0.finish_and_clear();
    }
}

/// Formats how long this process waits, of which time, and its queue position.
///
/// Returns `None` if the store fails. The pending acquire then fails too, and prints its error.
async fn position_text(
    locks: &Locks,
    name: &str,
    since: Instant,
    limit: Option<Duration>,
) -> Option<String> {
    let lock_state = locks.inspect(name).await.ok()?;
    let mut held = holder_text(&lock_state);
    if let Some(advice) = own_script::advice(&lock_state) {
        held = format!("{held}; {advice}");
    }

    let limit = limit.filter(|limit| !limit.is_zero());
    let limit = limit.map_or_else(String::new, |limit| format!(" of {}", whole_unit(limit)));
    let waited = format!("{}{limit}", whole_seconds(since.elapsed()));
    let position = lock_state.waiters().position(is_own);
    let position = position.map_or_else(String::new, |ahead| {
        format!("{} in the queue, ", ordinal(ahead + 1))
    });
    let name = lock_state.name;
    Some(format!("waiting for {name}: {waited}, {position}{held}"))
}

pub(crate) fn holder_text(lock_state: &LockState) -> String {
    let mut holders = lock_state.holders();
    let Some(first) = holders.next() else {
        return missing_holder_text(lock_state);
    };
    let first = claimant_and_age(first);
    match holders.count() {
        0 => format!("held by {first}"),
        1 => format!("held by {first} and 1 other"),
        others => format!("held by {first} and {others} others"),
    }
}

/// Formats the reason why a lock without a holder is not granted.
///
/// Either a process outside the queue holds it with flock(1), or the first waiter does not take it.
fn missing_holder_text(lock_state: &LockState) -> String {
    if let Some(holder) = lock_state.external_holders.first() {
        return format!("held by {holder} (flock)");
    }

    let first = lock_state.waiters().find(|waiter| !is_missing(waiter));
    match first.filter(|first| !is_own(first)) {
        Some(first) if is_stopped(&first.info) => {
            let first = first.info.to_string();
            format!("next is {first}, which is stopped and does not take its turn")
        }
        Some(first) => {
            let first = first.info.to_string();
            format!("no holder is visible; next is {first}, which does not take its turn")
        }
        None => "no holder is visible".to_owned(),
    }
}

async fn print_timed_out(locks: &Locks, name: &str, options: &LockOptions, origin: Origin) {
    if options.quiet {
        return;
    }

    let when = match options.wait {
        None | Some(Duration::ZERO) => "immediately".to_owned(),
        Some(wait) => format!("within {}", whole_unit(wait)),
    };

    // A command without the option would look into another store.
    let store = match origin {
        Origin::Option => format!(" --store {}", NameArgument(locks.url())),
        _ => String::new(),
    };
    let held = locks
        .inspect(name)
        .await
        .ok()
        .filter(|lock_state| {
            !lock_state.entries.is_empty() || !lock_state.external_holders.is_empty()
        })
        .map(|lock_state| {
            let advice = own_script::advice(&lock_state).map_or_else(
                || format!("see `leasehold show {}{store}`", NameArgument(name)),
                |advice| format!("{advice}{store}"),
            );
            let held = holder_text(&lock_state);
            let outlasting = crash_grace_advice(locks, &lock_state, options.wait);
            format!(": {held}{outlasting}; {advice}")
        })
        .unwrap_or_default();

    print_error(format_args!(
        "{} was not granted {when}{held}; {}",
        Escaped(name),
        origin.describe(locks.url())
    ));
}

/// Names the wait that gets the lock of a crashed holder, if this one was too short for that.
///
/// A command that does not wait keeps nothing of what it has observed, so only a longer wait helps.
/// A file would serve only tries that follow each other within 10 to 30 s, because the lease has
/// ended later. It may lie on a full disk, or on several machines with clocks of their own.
fn crash_grace_advice(locks: &Locks, lock_state: &LockState, waited: Option<Duration>) -> String {
    let CrashRelease::Within { grace, .. } = locks.guarantees().crash_release else {
        return String::new();
    };

    let has_crashed = lock_state.holders().any(is_missing);
    if !has_crashed || waited.is_some_and(|waited| waited > grace) {
        return String::new();
    }
    let longer = (grace + grace / 2).as_secs_f64().ceil();
    let grace = whole_unit(grace);
    format!("; -w {longer}s outlasts its crash grace ({grace})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn long_wait_is_reported_again_and_again() {
        let locks = leasehold::open("memory:").await.expect("it opens");
        let guard = locks.mutex("a").acquire().await.expect("granted");
        let (send, mut lines) = tokio::sync::mpsc::unbounded_channel();

        let limit = Some(Duration::from_secs(90));
        let text = async || position_text(&locks, "a", Instant::now(), limit).await;
        let reporting = report_lines(text, Duration::from_millis(1), |text| {
            send.send(text).expect("the test receives");
        });
        let third = async {
            lines.recv().await;
            lines.recv().await;
            lines.recv().await
        };
        let line = tokio::select! {
            never = reporting => match never {},
            line = timeout(Duration::from_secs(60), third) => line.expect("in time"),
        };

        let line = line.expect("it is sent");
        let begins = "waiting for a: 0s of 1m 30s, held by ";
        assert!(line.starts_with(begins), "{line}");
        guard.release().await.expect("released");
    }
}
