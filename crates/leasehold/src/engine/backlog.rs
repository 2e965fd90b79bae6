//! Departures that have no reply when the claim's lease has ended.
//!
//! A store whose clock went back keeps an entry for longer than the lease by the client's clock,
//! and a store without leases keeps it until it is closed. So the request is repeated for as long
//! as the store is open. No caller waits for it any more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::calls::{StoreCalls, WeakStoreCalls};
use crate::runtime::background;
use crate::runtime::backoff::Backoff;
use crate::{Claim, Guarantees};

/// How many departures are kept for a store that ends leases. Such a store ends almost all entries
/// by itself.
const COUNT_MAX: usize = 1_000;

/// The claims of one store that still have to leave. While there is one, a task sends the request
/// of the first.
#[derive(Debug, Default)]
pub(super) struct Backlog(Mutex<VecDeque<Arc<Claim>>>);

impl Backlog {
    /// Adds a claim; returns whether it is the only one, and the claim that is given up for it.
    fn push(&self, claim: Arc<Claim>, count_max: usize) -> (bool, Option<Arc<Claim>>) {
        let mut claims = self.0.lock();
        let is_only = claims.is_empty();
        let given_up = (claims.len() >= count_max).then(|| claims.pop_front());
        claims.push_back(claim);
        (is_only, given_up.flatten())
    }

    fn first(&self) -> Option<Arc<Claim>> {
        self.0.lock().front().map(Arc::clone)
    }

    /// Moves a claim that could not leave behind the others: they may be on another server.
    fn postpone(&self, claim: &Claim) {
        let mut claims = self.0.lock();
        if claims.front().is_some_and(|first| first.id == claim.id) {
            claims.rotate_left(1);
        }
    }

    /// Removes a claim that has left; returns the next one.
    fn remove(&self, claim: &Claim) -> Option<Arc<Claim>> {
        let mut claims = self.0.lock();
        claims.retain(|other| other.id != claim.id);
        claims.front().map(Arc::clone)
    }
}

/// Repeats the request in the background until the store replies.
#[cold]
pub(super) fn leave_later(calls: &StoreCalls, claim: Arc<Claim>) {
    let guarantees = calls.guarantees();
    let count_max = if guarantees.lease_expiry {
        COUNT_MAX
    } else {
        usize::MAX
    };
    let (is_only, given_up) = calls.backlog().push(claim, count_max);

    if let Some(claim) = given_up {
        let name = claim.name.as_str();
        tracing::warn!(
            name,
            "the claim cannot leave; it remains until the store ends it"
        );
    }
    if is_only {
        background::spawn(leave_one_by_one(calls.downgrade(), pauses(&guarantees)));
    }
}

/// A store that ends leases has few entries left to remove, so it gets few requests.
fn pauses(guarantees: &Guarantees) -> Backoff {
    if guarantees.lease_expiry {
        Backoff::between(Duration::from_secs(1), Duration::from_secs(60))
    } else {
        Backoff::default()
    }
}

async fn leave_one_by_one(calls: WeakStoreCalls, mut pauses: Backoff) {
    pauses.wait().await;

    while let Some(calls) = calls.upgrade() {
        let Some(claim) = calls.backlog().first() else {
            return;
        };
        if calls
            .leave(&claim)
            .await
            .is_err_and(|error| error.is_unavailable())
        {
            calls.backlog().postpone(&claim);
            drop(calls);
            pauses.wait().await;
        } else if calls.backlog().remove(&claim).is_none() {
            // The next claim starts the task again.
            return;
        } else {
            pauses.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use async_trait::async_trait;

    use super::*;
    use crate::conformance::support::within_timeout;
    use crate::conformance::{Intercept, Intercepted};
    use crate::stores::Memory;
    use crate::{
        ClaimantInfo, Entered, Error, Locks, Name, OnContention, Result, Share, Store, drain,
    };

    const LEASE: Duration = Duration::from_millis(100);

    /// A store whose clock went back after each grant: it keeps a claim for hours.
    #[derive(Clone, Debug, Default)]
    struct SetBack {
        store: Memory,
        is_down: Arc<AtomicBool>,
    }

    #[async_trait]
    impl Intercept for SetBack {
        fn inner(&self) -> &dyn Store {
            &self.store
        }

        async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
            let mut kept = claim.clone();
            kept.lease = Duration::from_secs(10_000);
            let entered = self.store.enter(&kept, on_contention).await?;
            Ok(Entered::new(entered.standing, claim.lease))
        }

        async fn leave(&self, claim: &Claim) -> Result<bool> {
            if self.is_down.load(SeqCst) {
                return Err(Error::unavailable("the test has cut the connection"));
            }
            self.store.leave(claim).await
        }
    }

    /// Shows G-10.
    #[tokio::test]
    async fn departure_goes_on_when_the_store_keeps_the_claim_after_its_lease() {
        let store = SetBack::default();
        let open = |store: Intercepted<SetBack>| Locks::from_store(store, "memory:");
        let ours = open(Intercepted(store.clone())).expect("the background thread runs");
        let theirs = Locks::from_store(store.store.clone(), "memory:").expect("it runs");
        let held = ours.mutex("a").lease(LEASE).acquire().await;
        let held = held.expect("granted");

        store.is_down.store(true, SeqCst);
        let released = within_timeout("the release ends", held.release()).await;
        assert!(released.expect_err("it has no reply").is_unavailable());
        within_timeout("nothing waits for the departure", drain()).await;
        let refused = theirs.mutex("a").try_acquire().await.expect("it replies");
        assert!(refused.is_none(), "the store has ended the claim");

        store.is_down.store(false, SeqCst);
        let next = within_timeout("the claim has left", theirs.mutex("a").acquire()).await;
        drop(next.expect("granted"));
    }

    /// Shows G-10.
    #[test]
    fn oldest_departure_is_given_up_when_there_are_too_many() {
        let backlog = Backlog::default();
        let claims = [1, 2, 3].map(|_| {
            let info = ClaimantInfo::here("test").expect("valid");
            let name = Name::parse("a").expect("valid");
            Arc::new(Claim::new(name, Share::MUTEX, Arc::new(info)))
        });
        let [first, second, third] = &claims;
        let ids = |claim: Option<Arc<Claim>>| claim.map(|claim| claim.id);

        let (is_only, given_up) = backlog.push(Arc::clone(first), 2);
        assert!(is_only && given_up.is_none());
        let (is_only, given_up) = backlog.push(Arc::clone(second), 2);
        assert!(!is_only && given_up.is_none());
        let (is_only, given_up) = backlog.push(Arc::clone(third), 2);
        assert!(!is_only);
        assert_eq!(ids(given_up), Some(first.id));

        backlog.postpone(second);
        assert_eq!(ids(backlog.first()), Some(third.id));
        assert_eq!(ids(backlog.remove(third)), Some(second.id));
        assert_eq!(ids(backlog.remove(second)), None);
    }
}
