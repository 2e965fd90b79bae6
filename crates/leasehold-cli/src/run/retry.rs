//! Retries requests while a network store is unavailable.

use std::convert::Infallible;
use std::fmt::Arguments;
use std::future::{Future, pending};
use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use leasehold::{Error, Guard, Lock, Refused, Result, kind_of, shown_url};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::commands::Store;
use crate::exit::{StandardError, print_error};
use crate::format::is_own;

/// The first pause between two attempts. It doubles with each attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The shortest time that a store gets for a reply. A store that is merely slow replies sooner.
const NO_REPLY_MIN: Duration = Duration::from_secs(1);

/// The attempts to get one lock, and whether the store is available.
///
/// ```text
/// available ── an attempt fails ──► unavailable ── opened, queued or granted ──► available
///                                        └── --wait is over ──► the last error
/// ```
/// Each change of the state is one line on standard error.
#[derive(Debug)]
pub(crate) struct Retry {
    pub(super) begun: Instant,
    /// The time limit of `--wait` for all attempts. Without a limit, the attempts continue forever.
    limit: Option<Duration>,
    deadline: Option<Instant>,
    /// Whether the store has a server. Only such a store can become available again by itself.
    has_server: bool,
    /// The store's URL, as errors show it.
    shown_url: String,
    /// The last error, while the store is unavailable.
    unavailable: Option<Error>,
    pause: Duration,
}

impl Retry {
    /// Starts the time limit of `--wait`.
    pub(crate) fn within(limit: Option<Duration>, store: &Store) -> Self {
        let begun = Instant::now();
        Self {
            begun,
            limit,
            deadline: limit.and_then(|limit| begun.checked_add(limit)),
            has_server: has_server(&store.url),
            shown_url: shown_url(&store.url),
            unavailable: None,
            pause: FIRST_PAUSE,
        }
    }

    /// Also retries while the server of a second store is unavailable.
    pub(crate) fn and_store(mut self, url: Option<&str>) -> Self {
        if let Some(url) = url.filter(|url| !url.is_empty()) {
            self.has_server |= has_server(url);
            self.shown_url = format!("{} or {}", self.shown_url, shown_url(url));
        }
        self
    }

    /// Repeats a request until it succeeds, or fails for a reason other than an unavailable store.
    ///
    /// # Errors
    /// The last error of the request once `--wait` is over. `--wait 0` allows one attempt.
    pub(crate) async fn until_available<T, F>(&mut self, send: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.until_replied(NO_REPLY_MIN, send).await
    }

    /// The same for a request to whose reply the store has at least this time.
    ///
    /// # Errors
    /// As [`until_available`](Self::until_available).
    pub(crate) async fn until_replied<T, F>(
        &mut self,
        at_least: Duration,
        send: impl Fn() -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        loop {
            let sent_at = Instant::now();
            let reply = tokio::select! {
                biased;
                reply = send() => reply,
                () = self.time_is_over(sent_at + at_least) => Err(self.no_reply(sent_at)),
            };

            match reply {
                Err(error) => self.failed(error).await?,
                Ok(reply) => {
                    self.succeeded();
                    return Ok(reply);
                }
            }
        }
    }

    /// Acquires the lock. Returns `None` if it was not granted within `--wait`.
    ///
    /// After an outage of more than ten seconds the claim enters the queue again, at the end.
    ///
    /// # Errors
    /// As [`until_available`](Self::until_available).
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue.
    pub(crate) async fn acquire(&mut self, lock: &Lock) -> Result<Result<Guard, Refused>> {
        loop {
            let acquiring = attempt(lock, self.remaining());
            let granted = tokio::select! {
                biased;
                granted = acquiring => granted,
                never = self.notice_end_of_outage(lock) => match never {},
            };

            match granted {
                Err(error) => self.failed(error).await?,
                Ok(granted) => {
                    self.succeeded();
                    return Ok(granted);
                }
            }
        }
    }

    /// Returns how much of `--wait` is left.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        self.deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Waits until `--wait` is over, and at least until `earliest`.
    ///
    /// With `--wait 0` it never returns: the only attempt has the request's own time limit.
    async fn time_is_over(&self, earliest: Instant) {
        match self.deadline {
            Some(deadline) if self.limit != Some(Duration::ZERO) => {
                sleep_until(deadline.max(earliest)).await;
            }
            _ => pending().await,
        }
    }

    /// Says why the store was unavailable before, if it was: that names the server.
    fn no_reply(&self, sent_at: Instant) -> Error {
        if let Some(earlier) = &self.unavailable {
            return earlier.clone();
        }
        let waited = sent_at.elapsed().as_secs_f32();
        let store = &self.shown_url;
        Error::unavailable(format!("{store} sent no reply within {waited:.1} s"))
    }

    /// Waits until the next attempt.
    ///
    /// # Errors
    /// The error itself, if no further attempt may follow it.
    async fn failed(&mut self, error: Error) -> Result<()> {
        if !error.is_unavailable() || !self.has_server || self.limit == Some(Duration::ZERO) {
            return Err(error);
        }

        if self.unavailable.is_none() && self.remaining() != Some(Duration::ZERO) {
            print_change(format_args!("the store is unavailable; retrying: {error}"));
        }
        self.unavailable = Some(error.clone());

        let pause = sleep(self.pause);
        self.pause = LONGEST_PAUSE.min(self.pause * 2);
        if let Some(deadline) = self.deadline {
            return timeout_at(deadline, pause).await.map_err(|_elapsed| error);
        }
        pause.await;
        Ok(())
    }

    fn succeeded(&mut self) {
        if self.unavailable.take().is_some() {
            print_change(format_args!("the store is available again"));
        }
        self.pause = FIRST_PAUSE;
    }

    /// Notices that the claim of this process is queued again after an outage.
    async fn notice_end_of_outage(&mut self, lock: &Lock) -> Infallible {
        while self.unavailable.is_some() {
            sleep(LONGEST_PAUSE).await;

            let lock_state = lock.locks().inspect(lock.name()).await;
            if lock_state.is_ok_and(|lock_state| lock_state.entries.iter().any(is_own)) {
                self.succeeded();
            }
        }
        pending().await
    }
}

pub(super) fn has_server(url: &str) -> bool {
    kind_of(url).is_some_and(|kind| !kind.is_local())
}

async fn attempt(lock: &Lock, limit: Option<Duration>) -> Result<Result<Guard, Refused>> {
    match limit {
        None => lock.acquire().await.map(Ok),
        Some(Duration::ZERO) => lock.try_acquire().await,
        Some(limit) => lock.try_acquire_for(limit).await,
    }
}

/// Prints a change of the store's state. It replaces the progress of the wait on a terminal.
fn print_change(line: Arguments<'_>) {
    const CLEAR_LINE: &str = "\r\x1b[2K";

    if stderr().is_terminal() {
        // A terminal that is gone must not end the wait, so the failure is ignored.
        let _ = write!(StandardError, "{CLEAR_LINE}");
    }
    print_error(line);
}
