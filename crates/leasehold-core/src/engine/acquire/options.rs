//! The options of an acquire.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::engine::calls::timed_out;
use crate::{ClaimId, Name, OnContention, Result, Share};

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
