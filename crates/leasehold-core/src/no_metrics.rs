//! The meters of a build without the feature `metrics`: they do nothing.
#![allow(
    clippy::unused_self,
    reason = "the methods are those of the real meters"
)]

use std::time::Duration;

pub(crate) use self::{
    NoLockMeters as LockMeters, NoMeters as Meters, NotMeasured as Started,
    UncountedWait as WaitingClaim,
};
use crate::metric_labels::{RenewalOutcome, RequestKind};
use crate::{LossReason, Name, Result};

/// Without the feature no clock is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotMeasured;

pub(crate) fn started() -> NotMeasured {
    NotMeasured
}

#[derive(Debug)]
pub(crate) struct NoMeters {
    lock: std::sync::Arc<NoLockMeters>,
}

#[derive(Debug)]
pub(crate) struct NoLockMeters;

#[derive(Debug)]
pub(crate) struct UncountedWait;

impl NoMeters {
    pub(crate) fn new(_url: &str) -> Self {
        Self {
            lock: std::sync::Arc::new(NoLockMeters),
        }
    }

    pub(crate) fn lock(&self, _name: &Name) -> &std::sync::Arc<NoLockMeters> {
        &self.lock
    }

    pub(crate) fn request<T>(&self, _: RequestKind, _: NotMeasured, _reply: &Result<T>) {}

    pub(crate) fn renewal(&self, _: RenewalOutcome) {}

    pub(crate) fn outage(&self) {}
}

impl NoLockMeters {
    pub(crate) fn granted(&self, _waited: Duration) {}

    pub(crate) fn not_granted(&self, _outcome: &'static str) {}

    pub(crate) fn hold_begins(&self) {}

    pub(crate) fn hold_ends(&self, _held: Duration) {}

    pub(crate) fn lost(&self, _: LossReason) {}

    pub(crate) fn waits(&self, _ahead: u32) -> UncountedWait {
        UncountedWait
    }

    pub(crate) fn hand_over_missed(&self) {}
}

pub(crate) fn reconnected(_service: &'static str) {}
