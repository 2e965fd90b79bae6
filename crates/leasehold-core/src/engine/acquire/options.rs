//! The options of an acquire.

use std::time::Duration;

use tokio::time::Instant;

use crate::{Name, OnContention, Share};

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
    /// How many more tokens the grant reserves. If there are any, the hold is passed on inside the
    /// process, and each of its holds has events of its own.
    pub(crate) reserved: u32,
    /// The hold is a part of another one, whose events count.
    pub(crate) is_part: bool,
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
            // A limit of zero bounds the wait in the queue, not the request: the store may have to
            // wait for its disk.
            Self::AtMost(_) | Self::Forever | Self::Never => None,
        }
    }

    pub(crate) fn on_contention(self) -> OnContention {
        match self {
            Self::Never => OnContention::Fail,
            Self::AtMost(limit) if limit.is_zero() => OnContention::Fail,
            Self::Forever | Self::AtMost(_) => OnContention::Queue,
        }
    }
}
