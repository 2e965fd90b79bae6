//! What this client knows of its own claims.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::claim_state::{ClaimState, is_queued};
use super::orphans::Orphan;
use super::record::{EnterReply, Push, Renewed};
use crate::claim::ById;
use crate::runtime::clock::BootInstant;
use crate::stores::redis_client;
use crate::{Claim, ClaimId, Name};

#[derive(Debug, Default)]
pub(super) struct Claims {
    table: Mutex<ClaimTable>,
}

#[derive(Debug, Default)]
struct ClaimTable {
    by_id: ById<Arc<TrackedClaim>>,
    /// Claims that wait or have waited, by name, in the order in which they were begun.
    by_name: HashMap<Name, BTreeSet<(u64, ClaimId)>>,
    begun: u64,
}

/// One claim, from its first request to its last.
#[derive(Debug)]
pub(super) struct TrackedClaim {
    name: Name,
    number: u64,
    state: Mutex<ClaimState>,
    /// Until when requests to enter that were not answered may be carried out.
    late_until: Mutex<Option<BootInstant>>,
    /// Until when the last renewal said that the claim is safe.
    safe_until: Mutex<BootInstant>,
    pub(super) changed: Notify,
}

impl Claims {
    /// The page of a claim, made if there is none.
    pub(super) fn begin(&self, claim: &Claim) -> Arc<TrackedClaim> {
        self.table.lock().tracked(claim)
    }

    /// The page of a claim that waits, or listens for its end.
    pub(super) fn listen(&self, claim: &Claim) -> Arc<TrackedClaim> {
        let mut table = self.table.lock();
        let tracked = table.tracked(claim);
        table
            .by_name
            .entry(claim.name.clone())
            .or_default()
            .insert((tracked.number, claim.id));
        tracked
    }

    pub(super) fn tracked(&self, id: ClaimId) -> Option<Arc<TrackedClaim>> {
        self.table.lock().by_id.get(&id).map(Arc::clone)
    }

    /// Forgets a claim; the page it had.
    pub(super) fn end(&self, id: ClaimId) -> Option<Arc<TrackedClaim>> {
        let mut table = self.table.lock();
        let tracked = table.by_id.remove(&id)?;
        if let Some(claims) = table.by_name.get_mut(&tracked.name) {
            claims.remove(&(tracked.number, id));
            if claims.is_empty() {
                table.by_name.remove(&tracked.name);
            }
        }
        Some(tracked)
    }

    /// Whether no other claim of this client waits for the same name ahead of this one.
    pub(super) fn is_foremost(&self, tracked: &TrackedClaim) -> bool {
        let table = self.table.lock();
        let Some(claims) = table.by_name.get(&tracked.name) else {
            return true;
        };
        let mut ahead = claims.range(..(tracked.number, ClaimId::from_bytes([0; 16])));
        !ahead.any(|(_, id)| {
            table
                .by_id
                .get(id)
                .is_some_and(|tracked| tracked.state().standing.is_none_or(is_queued))
        })
    }

    /// Takes note of what was told to the inbox. A grant to a claim that this client does not have makes an orphan: its
    /// id never comes again.
    pub(super) fn pushed(&self, text: &str) -> Option<Orphan> {
        let (id, push, key) = Push::parse(text)?;
        if let Some(tracked) = self.tracked(id) {
            tracked.pushed(&push);
            return None;
        }
        matches!(push, Push::Held(_)).then(|| Orphan {
            key: key.to_owned(),
            id: redis_client::id_text(id),
        })
    }
}

impl ClaimTable {
    fn tracked(&mut self, claim: &Claim) -> Arc<TrackedClaim> {
        if let Some(tracked) = self.by_id.get(&claim.id) {
            return Arc::clone(tracked);
        }
        self.begun += 1;
        let (name, number) = (claim.name.clone(), self.begun);
        let tracked = Arc::new(TrackedClaim {
            name,
            number,
            state: Mutex::default(),
            late_until: Mutex::default(),
            safe_until: Mutex::new(BootInstant::from_nanos(0)),
            changed: Notify::new(),
        });
        self.by_id.insert(claim.id, Arc::clone(&tracked));
        tracked
    }
}

impl TrackedClaim {
    pub(super) fn state(&self) -> ClaimState {
        self.state.lock().clone()
    }

    /// Takes note of an answer to a question sent at `sent_at`, which named the connection of `epoch`, while the near link
    /// was in its epoch `caller_epoch`.
    pub(super) fn with_reply_timeout(
        &self,
        reply: &EnterReply,
        sent_at: BootInstant,
        epoch: u32,
        caller_epoch: u32,
    ) {
        self.state.lock().with_reply_timeout(
            reply,
            sent_at,
            epoch,
            caller_epoch,
            BootInstant::now(),
        );
    }

    /// Takes note of the answer to a look.
    pub(super) fn looked(
        &self,
        reply: &EnterReply,
        sent_at: BootInstant,
        epoch: u32,
        caller_epoch: u32,
    ) {
        self.state
            .lock()
            .looked(reply, sent_at, epoch, caller_epoch, BootInstant::now());
    }

    /// Takes note of a renewal; `false` if the claim is gone.
    pub(super) fn renewal(&self, renewed: Renewed, sent_at: BootInstant, epoch: u32) -> bool {
        let (is_there, is_news) = {
            let mut state = self.state.lock();
            let before = (state.position, state.due);
            let is_there = state.renewal(renewed, sent_at, epoch);
            (is_there, before != (state.position, state.due))
        };
        if is_news {
            self.changed.notify_waiters();
        }
        is_there
    }

    /// Notes that the caller is given the claim as held.
    pub(super) fn pass_on(&self) {
        self.state.lock().pass_on(BootInstant::now());
    }

    /// Notes that a request to enter was not answered, and may be carried out until `until`.
    pub(super) fn may_be_late(&self, until: BootInstant) {
        let mut late_until = self.late_until.lock();
        *late_until = Some(late_until.map_or(until, |state| state.max(until)));
    }

    pub(super) fn late_until(&self) -> Option<BootInstant> {
        *self.late_until.lock()
    }

    pub(super) fn set_safe_until(&self, until: BootInstant) {
        let mut safe_until = self.safe_until.lock();
        *safe_until = safe_until.max(until);
    }

    pub(super) fn safe_until(&self) -> BootInstant {
        *self.safe_until.lock()
    }

    pub(super) fn revoked(&self) {
        self.pushed(&Push::Gone);
    }

    fn pushed(&self, push: &Push) {
        if self.state.lock().apply_push(push) {
            self.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use lab_servers::Redis as Server;

    use super::super::Redis;
    use crate::{Locks, Store};

    /// However a claim has come to its end, nothing is remembered of it.
    #[tokio::test]
    async fn local_claim_state_is_dropped_on_release() {
        const SOON: Duration = Duration::from_millis(5);
        let server = Server::start();
        let store = Arc::new(
            Redis::builder(&server.url())
                .expect("a good URL")
                .connect()
                .await
                .expect("it connects"),
        );
        let locks = Locks::from_arc(Arc::clone(&store) as Arc<dyn Store>, "redis:")
            .expect("the background thread runs");
        for _ in 0..20 {
            let lock = locks.mutex("a");
            let held = lock.acquire().await.expect("granted");
            assert!(lock.try_acquire().await.expect("asked").is_none());
            assert!(lock.try_acquire_for(SOON).await.expect("asked").is_none());
            drop(tokio::time::timeout(SOON, lock.acquire()).await);
            drop(tokio::time::timeout(SOON, held.lost()).await);
            drop(held);
            lock.acquire()
                .await
                .expect("granted")
                .release()
                .await
                .expect("released");
        }
        crate::drain().await;
        let table = store.claims.table.lock();
        assert!(
            table.by_id.is_empty() && table.by_name.is_empty(),
            "{table:?}"
        );
    }
}
