//! How long a store may be away while a claim waits.

use std::time::Duration;

use tokio::time::Instant;

use super::calls::REPLY_TIMEOUT;
use crate::{Error, Result};

/// The time since the first request that the store did not reply to, while a claim waits.
///
/// ```text
/// before entering ──entered──► reachable ──failed, noticed──► away ──longer than LONGEST──► the error
///                                  ▲                            │
///                                  └────────── is_over ─────────┘
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

    /// The store has replied to a request to enter.
    pub(super) fn entered(&mut self) {
        *self = Self {
            has_entered: true,
            away: None,
        };
    }

    /// The store has replied.
    pub(super) fn is_over(&mut self) {
        self.away = None;
    }

    /// A request has failed.
    ///
    /// # Errors
    /// The error, unless it says that the store is unavailable, which may be waited out for a while.
    pub(super) fn failed(&mut self, error: Error) -> Result<()> {
        if !error.is_unavailable() {
            return Err(error);
        }
        self.away_since(Instant::now(), error)
    }

    /// As [`failed`](Self::failed), of requests that have had no reply for this time.
    pub(super) fn began_before(&mut self, silence: Duration, error: Error) -> Result<()> {
        let now = Instant::now();
        // A request that failed says more than one that had no reply.
        let error = self.error().unwrap_or(error);
        self.away_since(now.checked_sub(silence).unwrap_or(now), error)
    }

    /// As [`failed`](Self::failed), of a request to enter that was sent then. The first one is not waited out: nothing waits
    /// yet.
    pub(super) fn entering_failed(&mut self, sent: Instant, error: Error) -> Result<()> {
        if !self.has_entered || !error.is_unavailable() {
            return Err(error);
        }
        self.away_since(sent, error)
    }

    pub(super) fn is_on(&self) -> bool {
        self.away.is_some()
    }

    /// When it has lasted too long.
    pub(super) fn ends_at(&self) -> Option<Instant> {
        self.away.as_ref().map(|away| away.since + Self::LONGEST)
    }

    /// Why the store is away.
    pub(super) fn error(&self) -> Option<Error> {
        self.away.as_ref().map(|away| away.error.clone())
    }

    pub(super) fn into_error(self) -> Option<Error> {
        self.away.map(|away| away.error)
    }

    fn away_since(&mut self, since: Instant, error: Error) -> Result<()> {
        let since = self
            .away
            .as_ref()
            .map_or(since, |away| away.since.min(since));
        if since.elapsed() >= Self::LONGEST {
            return Err(error);
        }
        self.away = Some(Away { since, error });
        Ok(())
    }
}
