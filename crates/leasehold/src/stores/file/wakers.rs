//! Waking claims, in this process and in others.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::Shared;
use super::process::{Peer, ProcessId};
use crate::ClaimId;

impl Shared {
    /// Rings claims, in this process or through their members' inboxes.
    pub(super) fn wake(&self, concerned: Vec<(ProcessId, ClaimId)>) {
        let mut others: HashMap<ProcessId, Vec<ClaimId>> = HashMap::new();
        for (process, id) in concerned {
            if process == self.own_process() {
                self.wake_peer(id);
            } else {
                others.entry(process).or_default().push(id);
            }
        }
        for (process, ids) in others {
            match Peer::open(&self.folder.members(), process) {
                Ok(Some(peer)) => peer.wake(&ids),
                // The dead are buried by whoever watches them.
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "could not wake the next in line"),
            }
        }
    }

    pub(super) fn wake_peer(&self, id: ClaimId) {
        if let Some(waker) = self.wakers.lock().get(&id) {
            waker.notify_waiters();
        }
    }

    pub(super) fn wake_all(&self) {
        self.wakers
            .lock()
            .values()
            .for_each(|waker| waker.notify_waiters());
    }

    pub(super) fn waker(&self, id: ClaimId) -> Waker<'_> {
        let notify = Arc::clone(self.wakers.lock().entry(id).or_default());
        Waker {
            shared: self,
            id,
            notify,
        }
    }
}

/// Hears rings for one claim as long as it lives.
pub(super) struct Waker<'a> {
    shared: &'a Shared,
    id: ClaimId,
    notify: Arc<Notify>,
}

impl Waker<'_> {
    /// The next ring from now on.
    pub(super) fn woken(&self) -> Notified<'_> {
        self.notify.notified()
    }
}

impl Drop for Waker<'_> {
    fn drop(&mut self) {
        let mut wakers = self.shared.wakers.lock();
        // One in the table and this one.
        if Arc::strong_count(&self.notify) == 2 {
            wakers.remove(&self.id);
        }
    }
}
