//! How long a store may be away while a claim waits.

use std::time::Duration;

use tokio::time::Instant;

use super::calls::REPLY_TIMEOUT;
use crate::{Error, Result};

/// The time since the first request without a reply, while a claim waits.
///
/// ```text
/// before entering ──entered──► reachable ──failed──► away ──longer than LONGEST──► the error
///                                  ▲                   │
///                                  └───── is_over ─────┘
/// ```
#[derive(Debug, Default)]
pub(super) struct Outage {
    has_entered: bool,
    away: Option<Away>,
}

#[derive(Debug)]
struct Away {
    since: Instant,
    error: Error,
}

impl Outage {
    /// A store that is away for longer is unavailable.
    pub(super) const LONGEST: Duration = REPLY_TIMEOUT;

    /// Notes that the store has replied to a request to enter.
    pub(super) fn entered(&mut self) {
        *self = Self {
            has_entered: true,
            away: None,
        };
    }

    /// Notes that the store has replied.
    pub(super) fn is_over(&mut self) {
        self.away = None;
    }

    /// Notes that a request has failed.
    ///
    /// # Errors
    /// The error itself, unless the store is unavailable and has not been for too long.
    pub(super) fn failed(&mut self, error: Error) -> Result<()> {
        if !error.is_unavailable() {
            return Err(error);
        }
        self.away_since(Instant::now(), error)
    }

    /// Notes that no request has had a reply for this time; see [`failed`](Self::failed).
    pub(super) fn began_before(&mut self, silence: Duration, error: Error) -> Result<()> {
        let now = Instant::now();
        let since = now.checked_sub(silence).unwrap_or(now);

        // The error of a failed request has more detail than a missing reply.
        let error = self.error().unwrap_or(error);
        self.away_since(since, error)
    }

    /// Notes that a request to enter has failed; see [`failed`](Self::failed).
    ///
    /// The first one fails at once, as nothing waits yet.
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

    /// Returns why the store is away.
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
