//! Waking claims, in this process and in others.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::Shared;
use super::member::{MemberId, Peer};
use crate::ClaimId;

impl Shared {
    /// Rings claims, in this process or through their members' inboxes.
    pub(super) fn wake(&self, concerned: Vec<(MemberId, ClaimId)>) {
        let mut others: HashMap<MemberId, Vec<ClaimId>> = HashMap::new();
        for (member, id) in concerned {
            if member == self.me() { self.ring(id) } else { others.entry(member).or_default().push(id) }
        }
        for (member, ids) in others {
            match Peer::open(&self.folder.members(), member) {
                Ok(Some(peer)) => peer.ring(&ids),
                // The dead are buried by whoever watches them.
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "could not wake the next in line"),
            }
        }
    }

    pub(super) fn ring(&self, id: ClaimId) {
        if let Some(bell) = self.bells.lock().get(&id) {
            bell.notify_waiters();
        }
    }

    pub(super) fn ring_all(&self) {
        self.bells.lock().values().for_each(|bell| bell.notify_waiters());
    }

    pub(super) fn bell(&self, id: ClaimId) -> Bell<'_> {
        let rings = Arc::clone(self.bells.lock().entry(id).or_default());
        Bell { shared: self, id, rings }
    }
}

/// Hears rings for one claim as long as it lives.
pub(super) struct Bell<'a> {
    shared: &'a Shared,
    id: ClaimId,
    rings: Arc<Notify>,
}

impl Bell<'_> {
    /// The next ring from now on.
    pub(super) fn rung(&self) -> Notified<'_> {
        self.rings.notified()
    }
}

impl Drop for Bell<'_> {
    fn drop(&mut self) {
        let mut bells = self.shared.bells.lock();
        // One in the table and this one.
        if Arc::strong_count(&self.rings) == 2 {
            bells.remove(&self.id);
        }
    }
}
