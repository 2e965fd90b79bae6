//! The options of an acquire, and how long it waits: for other holders, and for a store that does
//! not reply.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::calls::{REPLY_TIMEOUT, timed_out};
use crate::{ClaimId, Error, Name, OnContention, Result, Share};

/// The validated options of a lock.
#[derive(Clone, Debug)]
pub(crate) struct AcquireOptions {
    pub(crate) name: Name,
    pub(crate) share: Share,
    pub(crate) lease: Duration,
    pub(crate) label: String,
    /// Whether the label is the address of a candidate.
    pub(crate) is_candidate: bool,
    /// The lease is not renewed.
    pub(crate) no_renewal: bool,
    pub(crate) max_hold: Option<Duration>,
    /// How long the acquire may take beyond its time limit.
    pub(crate) reply_timeout: Duration,
    /// How many more tokens the grant reserves. If there are any, the hold is passed on inside the
    /// process, and each of its holds has events of its own.
    pub(crate) reserved: u32,
    /// The claim whose hold this one is a part of. The events of that hold count.
    pub(crate) part_of: Option<ClaimId>,
}

impl AcquireOptions {
    /// Returns the options of a claim whose holds have limits of their own.
    pub(crate) fn for_store(&self) -> Self {
        Self {
            max_hold: None,
            ..self.clone()
        }
    }
}

/// How long the claim may wait in the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitLimit {
    Forever,
    Never,
    AtMost(Duration),
}

impl WaitLimit {
    pub(crate) fn deadline(self) -> Option<Instant> {
        match self {
            // A deadline beyond the clock's range does not limit the wait.
            Self::AtMost(limit) if !limit.is_zero() => Instant::now().checked_add(limit),
            // A limit of zero bounds the wait in the queue, not the request.
            Self::AtMost(_) | Self::Forever | Self::Never => None,
        }
    }

    /// Returns what is left of this limit, whose deadline was computed at the beginning.
    pub(crate) fn rest(self, deadline: Option<Instant>) -> Self {
        match deadline {
            Some(deadline) => Self::AtMost(deadline.saturating_duration_since(Instant::now())),
            None => self,
        }
    }

    /// Whether an acquire whose hold is lost before it is used may wait once more.
    pub(crate) fn allows_another_wait(self, deadline: Option<Instant>) -> bool {
        match self {
            Self::Forever => true,
            Self::Never => false,
            // A limit of zero has no deadline, and is one try.
            Self::AtMost(_) => deadline.is_some_and(|deadline| Instant::now() < deadline),
        }
    }

    /// Returns how long the first request of an acquire with this limit waits for its reply.
    pub(crate) fn first_reply(self, reply_timeout: Duration) -> Duration {
        match self {
            Self::Forever => REPLY_TIMEOUT,
            Self::Never => reply_timeout,
            Self::AtMost(limit) => reply_timeout.max(limit.min(REPLY_TIMEOUT)),
        }
    }

    /// Ends an acquire with this limit whose store sends no reply for `reply_timeout` longer.
    ///
    /// It is dropped, so that the background completes the request that is under way and undoes it.
    pub(crate) async fn bound<T>(
        self,
        reply_timeout: Duration,
        acquiring: Pin<&mut impl Future<Output = Result<T>>>,
    ) -> Result<T> {
        let longest = match self {
            Self::Forever => None,
            Self::Never => Some(reply_timeout),
            Self::AtMost(limit) => limit.checked_add(reply_timeout),
        };
        let end = longest.and_then(|longest| Instant::now().checked_add(longest));
        let Some(end) = end else {
            return acquiring.await;
        };

        timeout_at(end, acquiring)
            .await
            .unwrap_or_else(|_elapsed| Err(timed_out(reply_timeout)))
    }

    pub(crate) fn on_contention(self) -> OnContention {
        match self {
            Self::Never => OnContention::Fail,
            Self::AtMost(limit) if limit.is_zero() => OnContention::Fail,
            Self::Forever | Self::AtMost(_) => OnContention::Queue,
        }
    }
}

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

    /// Records an outage that began at `since`, or that has gone on since then.
    ///
    /// Two observers report the same outage: each failed request of the waiter, and its renewals,
    /// which may have been late for longer than that. So the earliest beginning counts, whoever
    /// reports it, and only a reply ends the outage. If a report replaced the beginning, a waiter
    /// whose requests fail every few seconds would begin the outage again with each of them, and
    /// would wait for as long as the store is away.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A waiter survives each outage of less than [`Outage::LONGEST`], however many there are.
    ///
    /// Shows G-26.
    #[tokio::test(start_paused = true)]
    async fn outage_counts_from_its_own_beginning() {
        let mut outage = Outage::default();
        outage.entered();
        for reply in [Outage::replied, Outage::entered] {
            let error = Error::unavailable("the store is away");
            outage.failed(error.clone()).expect("it has begun");
            tokio::time::advance(Outage::LONGEST / 2).await;
            outage.failed(error.clone()).expect("it is short");

            reply(&mut outage);
            assert!(!outage.is_on());
            tokio::time::advance(Outage::LONGEST).await;
            outage.failed(error.clone()).expect("another one has begun");
            tokio::time::advance(Outage::LONGEST).await;
            outage.failed(error).expect_err("it is too long");
            reply(&mut outage);
        }
    }

    /// The store that has queued a claim may be away for a while, and it is not for the first
    /// request.
    ///
    /// Shows G-26.
    #[tokio::test(start_paused = true)]
    async fn only_a_claim_that_has_entered_waits_through_an_outage() {
        let away = || Error::unavailable("the store is away");
        let mut outage = Outage::default();
        outage
            .entering_failed(Instant::now(), away())
            .expect_err("it has not entered");

        outage.entered();
        let refused = outage.entering_failed(Instant::now(), Error::denied("no rights"));
        refused.expect_err("no outage");
        assert!(!outage.is_on() && outage.ends_at().is_none() && outage.error().is_none());

        let began_at = Instant::now();
        outage
            .entering_failed(began_at, away())
            .expect("it has begun");
        tokio::time::advance(Outage::LONGEST / 2).await;
        assert!(outage.is_on());
        assert_eq!(outage.ends_at(), Some(began_at + Outage::LONGEST));
        assert!(outage.error().is_some_and(|error| error.is_unavailable()));
    }

    #[tokio::test(start_paused = true)]
    async fn lost_grant_is_followed_by_another_wait_within_the_limit() {
        let limit = WaitLimit::AtMost(Duration::from_secs(1));
        let deadline = limit.deadline();
        assert!(limit.allows_another_wait(deadline));
        assert!(WaitLimit::Forever.allows_another_wait(None));
        assert!(!WaitLimit::Never.allows_another_wait(None));
        assert!(!WaitLimit::AtMost(Duration::ZERO).allows_another_wait(None));

        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!limit.allows_another_wait(deadline));
    }
}
