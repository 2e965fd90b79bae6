//! How long a store may be unreachable while a claim waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::calls::REPLY_TIMEOUT;
use crate::{Error, Result};

/// The time since the first request without a reply, while a claim waits.
///
/// ```text
/// before entering ──entered──► reachable ──failed──► away ──longer than LONGEST──► the error
///                                  ▲                   │
///                                  └───── replied ─────┘
/// ```
#[derive(Debug, Default)]
pub(super) struct Outage {
    /// Whether the store has replied to a request to enter.
    has_entered: bool,
    /// A copy of it for those that wait for the same claim.
    shown_by: Option<Arc<AtomicBool>>,
    away: Option<Away>,
}

#[derive(Debug)]
struct Away {
    since: Instant,
    error: Error,
}

impl Outage {
    /// After a longer outage, the store counts as unavailable.
    pub(super) const LONGEST: Duration = REPLY_TIMEOUT;

    /// Begins before the first request to enter. The flag shows that the store has replied to it.
    pub(super) fn shown_by(has_entered: Arc<AtomicBool>) -> Self {
        Self {
            shown_by: Some(has_entered),
            ..Self::default()
        }
    }

    /// Records that the store has replied to a request to enter.
    pub(super) fn entered(&mut self) {
        self.has_entered = true;
        self.away = None;
        if let Some(has_entered) = &self.shown_by {
            has_entered.store(true, Ordering::Release);
        }
    }

    /// Records that the store has replied.
    pub(super) fn replied(&mut self) {
        self.away = None;
    }

    /// Records that a request has failed.
    ///
    /// # Errors
    /// The error itself, unless the store is unavailable and the outage is still short enough.
    pub(super) fn failed(&mut self, error: Error) -> Result<()> {
        if !error.is_unavailable() {
            return Err(error);
        }
        self.away_since(Instant::now(), error)
    }

    /// Records that no request has had a reply for this time; see [`failed`](Self::failed).
    pub(super) fn began_before(&mut self, silence: Duration, error: Error) -> Result<()> {
        let now = Instant::now();
        let since = now.checked_sub(silence).unwrap_or(now);

        // The error of a failed request has more detail than a missing reply.
        let error = self.error().unwrap_or(error);
        self.away_since(since, error)
    }

    /// Records that a request to enter has failed; see [`failed`](Self::failed).
    ///
    /// The first request to enter fails at once, as the claim does not wait yet.
    pub(super) fn entering_failed(&mut self, sent_at: Instant, error: Error) -> Result<()> {
        if !self.has_entered || !error.is_unavailable() {
            return Err(error);
        }
        self.away_since(sent_at, error)
    }

    pub(super) fn is_on(&self) -> bool {
        self.away.is_some()
    }

    /// Returns the time from which the outage is too long.
    pub(super) fn ends_at(&self) -> Option<Instant> {
        self.away.as_ref().map(|away| away.since + Self::LONGEST)
    }

    /// Returns why the store is unreachable.
    pub(super) fn error(&self) -> Option<Error> {
        self.away.as_ref().map(|away| away.error.clone())
    }

    pub(super) fn into_error(self) -> Option<Error> {
        self.away.map(|away| away.error)
    }

    fn away_since(&mut self, since: Instant, error: Error) -> Result<()> {
        let earlier = self.away.as_ref().map(|away| away.since);
        let since = earlier.map_or(since, |earlier| earlier.min(since));

        if since.elapsed() >= Self::LONGEST {
            return Err(error);
        }
        self.away = Some(Away { since, error });
        Ok(())
    }
}
