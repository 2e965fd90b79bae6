//! The claims of this client. Only the client itself knows which of its claims wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::keys::RedissonKeys;
use super::local_claim::LocalClaim;
use crate::claim::ById;
use crate::runtime::clock::BootInstant;
use crate::{Claim, ClaimId, ClaimantInfo, Entry, Standing, Token};

/// For how many locks this client remembers a head start.
const HEAD_STARTS_MAX: usize = 4096;
/// The head start of the notified waiters of other clients: a round trip of a Java program.
/// Meanwhile the claims of this client do not try to acquire the lock. Without it, a client that
/// releases and acquires in a loop starves them.
const HEAD_START: Duration = Duration::from_millis(3);
/// The smallest size of the table at which claims without a final leave are swept out.
const SWEEP_MIN: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct LocalClaims {
    table: Mutex<ClaimMaps>,
}

#[derive(Debug, Default)]
struct ClaimMaps {
    by_id: ById<Arc<LocalClaim>>,
    /// The waiting claims of each lock, in order of arrival.
    waiting: HashMap<Arc<str>, Vec<Arc<LocalClaim>>>,
    /// Until when each lock is left to the waiters of other clients.
    head_starts: HashMap<Arc<str>, BootInstant>,
    sweep_at: usize,
}

impl LocalClaims {
    /// Returns the state of a claim, and creates it if there is none.
    pub(super) fn begin(&self, claim: &Claim, keys: RedissonKeys) -> Arc<LocalClaim> {
        let mut table = self.table.lock();
        if let Some(local) = table.by_id.get(&claim.id) {
            return Arc::clone(local);
        }
        if table.by_id.len() >= table.sweep_at {
            table.sweep();
        }

        let local = Arc::new(LocalClaim::new(claim.clone(), keys));
        table.by_id.insert(claim.id, Arc::clone(&local));
        local
    }

    pub(super) fn get(&self, id: ClaimId) -> Option<Arc<LocalClaim>> {
        self.table.lock().by_id.get(&id).map(Arc::clone)
    }

    /// Queues a claim behind the waiting claims of this client.
    pub(super) fn wait(&self, local: &Arc<LocalClaim>, until: BootInstant) {
        let mut table = self.table.lock();
        local.set_waiting(until);

        let waiting = table.waiting.entry(Arc::clone(&local.keys.lock));
        let waiting = waiting.or_default();
        if !waiting.iter().any(|other| Arc::ptr_eq(other, local)) {
            waiting.push(Arc::clone(local));
        }
    }

    /// Records that a claim holds the lock. Returns whether it is still a claim of this client.
    pub(super) fn hold(&self, local: &Arc<LocalClaim>, token: Token, field: String) -> bool {
        let mut table = self.table.lock();
        let is_present = table.by_id.contains_key(&local.claim.id);
        if is_present {
            local.set_held(token, field);
            table.stop_waiting(local);
        }
        is_present
    }

    /// Ends a claim for this client. The claim is remembered until [`forget`](Self::forget).
    pub(super) fn close(&self, id: ClaimId) -> Option<Arc<LocalClaim>> {
        let mut table = self.table.lock();
        let local = table.by_id.get(&id).map(Arc::clone)?;
        table.stop_waiting(&local);
        local.set_gone();
        local.changed.notify_waiters();
        Some(local)
    }

    pub(super) fn forget(&self, id: ClaimId) {
        self.table.lock().by_id.remove(&id);
    }

    /// Whether no other claim of this client waits ahead of this one.
    pub(super) fn is_first(&self, local: &LocalClaim) -> bool {
        let table = self.table.lock();
        let waiting = table.waiting.get(&local.keys.lock);
        let first = waiting.and_then(|waiting| waiting.first());
        first.is_none_or(|first| first.claim.id == local.claim.id)
    }

    /// Whether a claim of this client waits for a lock.
    pub(super) fn has_waiters(&self, key: &str) -> bool {
        self.table.lock().waiting.contains_key(key)
    }

    /// Returns the waiting claims of this client.
    pub(super) fn waiters(&self, key: &str) -> Vec<Entry> {
        let now = BootInstant::now();
        let table = self.table.lock();
        let waiting = table.waiting.get(key).map(Vec::as_slice);
        let waiting = waiting.unwrap_or_default().iter();
        let kept = waiting.filter(|local| local.kept_until() > now);

        let entry = |(local, ahead): (&Arc<LocalClaim>, u32)| {
            let claim = &local.claim;
            let info = ClaimantInfo::clone(&claim.info);
            Entry::new(claim.id, local.share(), Standing::Queued { ahead }, info)
        };
        kept.zip(1..).map(entry).collect()
    }

    /// Leaves the lock to the waiters of other clients for a moment.
    pub(super) fn give_head_start(&self, key: &Arc<str>) {
        let mut table = self.table.lock();
        if table.head_starts.len() >= HEAD_STARTS_MAX {
            table.head_starts.clear();
        }
        let until = BootInstant::now().saturating_add(HEAD_START);
        table.head_starts.insert(Arc::clone(key), until);
    }

    /// Returns how long to leave the lock to other clients. It does so once for each release.
    pub(super) fn take_head_start(&self, key: &str) -> Duration {
        let mut table = self.table.lock();
        if table.head_starts.is_empty() {
            return Duration::ZERO;
        }
        let until = table.head_starts.remove(key);
        until.map_or(Duration::ZERO, |until| {
            until.duration_since(BootInstant::now())
        })
    }
}

impl ClaimMaps {
    /// Removes the claims that ended a lease ago and whose final leave failed.
    fn sweep(&mut self) {
        let now = BootInstant::now();
        self.by_id.retain(|_, local| !local.is_over(now));
        self.sweep_at = (self.by_id.len() * 2).max(SWEEP_MIN);
    }

    fn stop_waiting(&mut self, local: &Arc<LocalClaim>) {
        let Some(waiting) = self.waiting.get_mut(&local.keys.lock) else {
            return;
        };
        waiting.retain(|other| !Arc::ptr_eq(other, local));
        match waiting.first() {
            // From now on this waiter tries to acquire the lock.
            Some(first) => first.changed.notify_waiters(),
            None => drop(self.waiting.remove(&local.keys.lock)),
        }
    }
}
