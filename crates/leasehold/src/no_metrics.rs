//! The meters of a build without the feature `metrics`: they do nothing.
#![allow(
    clippy::unused_self,
    reason = "the methods are those of the real meters"
)]

use std::time::Duration;

use crate::{LossReason, Name, Result};

/// Without the feature no clock is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started;

pub(crate) fn started() -> Started {
    Started
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Enter,
    Renew,
    Leave,
    Inspect,
    List,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    Renewed,
    Gone,
    NoReply,
}

#[derive(Debug)]
pub(crate) struct Meters {
    lock: std::sync::Arc<LockMeters>,
}

#[derive(Debug)]
pub(crate) struct LockMeters;

#[derive(Debug)]
pub(crate) struct Waiting;

impl Meters {
    pub(crate) fn new(_url: &str) -> Self {
        Self {
            lock: std::sync::Arc::new(LockMeters),
        }
    }

    pub(crate) fn lock(&self, _name: &Name) -> &std::sync::Arc<LockMeters> {
        &self.lock
    }

    pub(crate) fn request<T>(&self, _: Operation, _: Started, _reply: &Result<T>) {}

    pub(crate) fn renewal(&self, _: Outcome) {}

    pub(crate) fn outage(&self) {}
}

impl LockMeters {
    pub(crate) fn granted(&self, _waited: Duration) {}

    pub(crate) fn not_granted(&self, _outcome: &'static str) {}

    pub(crate) fn hold_begins(&self) {}

    pub(crate) fn hold_ends(&self, _held: Duration, _loss: Option<LossReason>) {}

    pub(crate) fn waits(&self, _ahead: u32) -> Waiting {
        Waiting
    }

    pub(crate) fn hand_over_missed(&self) {}
}

#[allow(dead_code, reason = "only the stores on a network have connections")]
pub(crate) fn reconnected(_service: &'static str) {}
