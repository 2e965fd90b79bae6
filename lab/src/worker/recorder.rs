//! The recording of events.

use std::io::{Write, stdout};

use anyhow::Result;
use leasehold::LossReason;

use crate::{Event, EventKind, LockKind, WorkerConfig, now};

/// Writes one line at once.
pub(super) fn write_event(event: Event) -> Result<()> {
    let line = format!("{event}\n");
    let mut stdout = stdout().lock();
    stdout.write_all(line.as_bytes())?;
    Ok(stdout.flush()?)
}

/// Records the events of one thread and one lock.
#[derive(Clone, Copy)]
pub(super) struct Recorder<'a> {
    pub(super) config: &'a WorkerConfig,
    pub(super) thread: u32,
    pub(super) name: u16,
}

impl Recorder<'_> {
    /// Returns the time of the grant.
    pub(super) fn granted(self, token: leasehold::Token) -> Result<u64> {
        let at = now();
        let (weight, capacity) = share(self.config.kind_of(self.name));
        self.record_at(
            at,
            EventKind::Granted {
                token: token.get(),
                weight,
                capacity,
            },
        )?;
        Ok(at)
    }

    pub(super) fn valid_until(self, at: u64, until: u64) -> Result<()> {
        self.record_at(at, EventKind::ValidUntil { until })
    }

    pub(super) fn nested(self, token: leasehold::Token, count: usize) -> Result<()> {
        self.record(EventKind::Nested {
            token: token.get(),
            count: u32::try_from(count)?,
        })
    }

    pub(super) fn unnested(self, count: usize) -> Result<()> {
        self.record(EventKind::Unnested {
            count: u32::try_from(count)?,
        })
    }

    /// `good` is when the hold was last known to be valid.
    pub(super) fn lost(self, good: u64, loss: LossReason) -> Result<()> {
        self.record_at(
            good,
            if loss == LossReason::Revoked {
                EventKind::Revoked
            } else {
                EventKind::Expired
            },
        )
    }

    pub(super) fn record(self, kind: EventKind) -> Result<()> {
        self.record_at(now(), kind)
    }

    pub(super) fn record_at(self, at: u64, kind: EventKind) -> Result<()> {
        write_event(Event {
            at,
            thread: self.thread,
            name: self.name,
            kind,
        })
    }
}

/// The weight and the capacity of a kind of lock.
fn share(kind: LockKind) -> (u32, u32) {
    use leasehold::store::Share;
    match kind {
        LockKind::Mutex => (1, 1),
        LockKind::Reader => (1, Share::RW_CAPACITY),
        LockKind::Writer => (Share::RW_CAPACITY, Share::RW_CAPACITY),
        LockKind::Slots { permits, slots } => (permits, slots),
    }
}
