//! The holds of all clients, as the checker knows them.

use std::time::Duration;

use leasehold::simulation::{BootInstant, Probe};
use leasehold::store::{Share, units};

use crate::server::Nanos;

/// One guard, from the moment at which its client gets it.
#[derive(Debug)]
pub(crate) struct HoldRecord {
    pub(crate) probe: Probe,
    pub(crate) client: usize,
    pub(crate) name: u8,
    pub(crate) share: Share,
    pub(crate) token: u64,
    /// How often the claim is passed on inside the process.
    pub(crate) passes_max: u32,
    pub(crate) granted_at: Nanos,
    pub(crate) lease: Duration,
    /// No renewal extends the validity beyond this time of the client's clock.
    pub(crate) bound: BootInstant,
    /// Whether the client waits for the loss.
    pub(crate) is_watched: bool,
    /// Whether an operator has removed the claim. Another client may hold then, but this one may
    /// trust the claim only until it receives that it is gone, or until its lease ends.
    pub(crate) is_evicted: bool,
    /// When the checker first saw it invalid.
    pub(crate) invalid_since: Option<Nanos>,
    /// Whether the client has given it back. The guard is then invalid forever.
    pub(crate) is_closed: bool,
}

impl HoldRecord {
    /// Returns whether two holds of a lock cannot be valid at the same time.
    pub(crate) fn excludes(&self, other: &Self) -> bool {
        let (weight, capacity) = units(self.share);
        weight.saturating_add(units(other.share).0) > capacity
    }

    /// Returns until when the client trusts the hold; `None` if no longer.
    pub(crate) fn trusted_until(&self, now: BootInstant) -> Option<BootInstant> {
        let until = self.probe.expires_at();
        (now < until).then_some(until)
    }
}
