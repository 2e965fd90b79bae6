//! Leaving the queue, whichever step of entering it was under way.

use std::sync::Arc;
use std::time::Duration;

use super::calls::{REPLY_TIMEOUT, StoreCalls, Timed};
use crate::runtime::background::{self, Detached, without_panic};
use crate::runtime::backlog::{Backlog, Repeat, repeat};
use crate::runtime::backoff::Backoff;
use crate::runtime::clock::BootInstant;
use crate::{Claim, Completion, Entered, Error, Guarantees, Result};

/// Whether the store may have an entry of a claim that no hold releases.
///
/// ```text
/// Absent ──begin──► Sent ──reply──► Replied ──granted, refused──► Absent
///                     └──────take──────┴──► Absent, and the claim departs
/// ```
pub(super) enum PendingEntry {
    /// The request to enter was not sent, or a hold has taken over the entry.
    Absent,
    /// The request to enter is under way.
    Sent(PendingEnter),
    /// The request to enter has its reply, which may be an error.
    Replied,
}

/// A request to enter that may still be under way.
pub(super) type PendingEnter = Detached<Result<Timed<Entered>>>;

impl PendingEntry {
    /// Records the request, and returns it to be polled.
    pub(super) fn begin(&mut self, entering: PendingEnter) -> &mut PendingEnter {
        *self = Self::Sent(entering);
        match self {
            Self::Sent(entering) => entering,
            Self::Absent | Self::Replied => unreachable!("the request was just noted"),
        }
    }

    /// Leaves `Absent` behind; returns the entry that has to depart.
    pub(super) fn take(&mut self) -> Option<Self> {
        match std::mem::replace(self, Self::Absent) {
            Self::Absent => None,
            entry => Some(entry),
        }
    }
}

/// Makes a claim leave; returns whether it was there.
///
/// A request to enter that is still under way completes first: leaving must not overtake it. If it
/// did, the store would find nothing to remove, and add the claim afterwards. Nobody renews or
/// releases such an entry, so it would wait or even hold the lock until its lease ends, and for
/// ever in a store without leases. If the request ends without a reply, a server may still execute
/// it later. That is for the store to handle, because only the store knows until when.
///
/// If the store is unreachable, the request is repeated until the store would have ended the claim
/// by itself. After that the background goes on, and the caller gets the error. If the claim is not
/// there after a request without a reply, that request has removed it.
pub(super) async fn depart(
    calls: StoreCalls,
    claim: Arc<Claim>,
    entry: PendingEntry,
) -> Result<bool> {
    if let PendingEntry::Sent(entering) = entry {
        // The reply no longer matters. No entry can appear after it.
        let _ = without_panic(entering).await;
    }

    let give_up_at = BootInstant::now().saturating_add(calls.lease_of(&claim));
    let mut backoff = Backoff::default();
    let mut had_no_reply = false;
    loop {
        // A store without leases would keep the claim for ever.
        match without_panic(calls.leave(&claim)).await {
            Ok(was_there) => return Ok(was_there || had_no_reply),
            // A repeated request helps only if the store could not be reached.
            Err(error) if !error.is_unavailable() || BootInstant::now() >= give_up_at => {
                give_up(&calls, claim, &error);
                return Err(error);
            }
            Err(_) => {
                had_no_reply = true;
                backoff.wait().await;
            }
        }
    }
}

/// Records what a claim has completed, and makes it leave in the same step; returns whether it was
/// recorded. If it was not, the claim leaves all the same.
pub(super) async fn complete(
    calls: StoreCalls,
    claim: Arc<Claim>,
    completion: Completion,
) -> Result<bool> {
    // The caller waits no longer.
    let give_up_at = BootInstant::now().saturating_add(REPLY_TIMEOUT);
    let mut backoff = Backoff::default();
    let recorded = loop {
        match without_panic(calls.complete(&claim, &completion)).await {
            Err(error) if error.is_unavailable() && BootInstant::now() < give_up_at => {
                backoff.wait().await;
            }
            recorded => break recorded,
        }
    };
    if !matches!(recorded, Ok(true)) {
        // What matters to the caller is the record.
        let _ = depart(calls, claim, PendingEntry::Replied).await;
    }
    recorded
}

#[cold]
fn give_up(calls: &StoreCalls, claim: Arc<Claim>, error: &Error) {
    if error.is_unavailable() {
        leave_later(calls, claim);
        return;
    }

    let name = claim.name.as_str();
    tracing::warn!(name, %error, "the claim cannot leave; it remains until the store ends it");
}

/// Repeats the request in the background until the store replies.
///
/// A store whose clock went back keeps an entry for longer than the lease by the client's clock,
/// and a store without leases keeps it until it is closed. So the request is repeated for as long
/// as the store is open. No caller waits for it any more.
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
        let calls = calls.downgrade();
        let pauses = pauses(&guarantees);
        background::spawn_restarting(move || {
            let calls = calls.clone();
            repeat(move || calls.upgrade(), pauses.clone())
        });
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

impl Repeat for StoreCalls {
    type Request = Claim;

    fn backlog(&self) -> &Backlog<Claim> {
        self.backlog()
    }

    async fn has_reply(&self, claim: &Claim) -> bool {
        let left = self.leave(claim).await;
        !left.is_err_and(|error| error.is_unavailable())
    }
}

/// How many departures are kept for a store that ends leases. Such a store ends almost all entries
/// by itself.
const COUNT_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use async_trait::async_trait;

    use super::*;
    use crate::store::{Intercept, Intercepted};
    use crate::stores::Memory;
    use crate::{Locks, OnContention, Store, drain};
    use leasehold_conformance::support::within_timeout;

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
        let held = ours
            .mutex("a")
            .lease(LEASE)
            .acquire()
            .await
            .expect("granted");

        store.is_down.store(true, SeqCst);
        let released = within_timeout("the release ends", held.release()).await;
        assert!(released.expect_err("it has no reply").is_unavailable());
        within_timeout("nothing waits for the departure", drain()).await;
        let refused = theirs.mutex("a").try_acquire().await.expect("it replies");
        assert!(refused.is_err(), "the store has ended the claim");

        store.is_down.store(false, SeqCst);
        let next = within_timeout("the claim has left", theirs.mutex("a").acquire()).await;
        drop(next.expect("granted"));
    }

    /// A server that was down has other things to do than to repeat this.
    #[test]
    fn store_that_ends_leases_gets_few_departures() {
        let mut guarantees = Memory::new().guarantees();
        let longest = Duration::from_secs(60);
        assert_eq!(pauses(&guarantees), Backoff::between(longest / 60, longest));
        guarantees.lease_expiry = false;
        assert_eq!(pauses(&guarantees), Backoff::default());
    }
}
