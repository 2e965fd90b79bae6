//! The claim that is entered while its store is opened.

use std::sync::Arc;

use tokio::time::timeout;

use super::Engine;
use super::acquire::claim_of;
use super::calls::{REPLY_TIMEOUT, StoreCalls, Timed};
use super::depart::{PendingEntry, depart};
use super::limits::{AcquireOptions, WaitLimit};
use crate::runtime::background::Detached;
use crate::{Claim, Entered, OnContention, Result};

/// A claim that was entered, until an acquire takes it. Dropping it makes the claim leave.
pub(super) struct FirstEntry {
    calls: StoreCalls,
    claim: Arc<Claim>,
    on_contention: OnContention,
    pending_entry: PendingEntry,
    entered: Option<Timed<Entered>>,
}

/// Enters a claim by the first request to its store. The next acquire with these options takes it.
///
/// It is one attempt, which opens the store. If it fails, the claim has left when it returns, unless
/// the store does not reply; the background then goes on.
///
/// # Cancel safety
/// As that of an acquire.
pub(crate) async fn enter(
    engine: &Engine,
    options: &AcquireOptions,
    limit: WaitLimit,
) -> Result<()> {
    let mut first = FirstEntry {
        calls: engine.calls.clone(),
        claim: Arc::new(claim_of(options)?),
        on_contention: limit.on_contention(),
        pending_entry: PendingEntry::Absent,
        entered: None,
    };

    let calls = first.calls.clone();
    let claim = Arc::clone(&first.claim);
    let on_contention = first.on_contention;
    let entering = async move { calls.enter_first(&claim, on_contention).await };
    let entered = first.pending_entry.begin(Detached::new(entering)).await;
    first.pending_entry = PendingEntry::Replied;

    match entered {
        Ok(entered) => {
            first.entered = Some(entered);
            *engine.first.lock() = Some(first);
            Ok(())
        }
        Err(error) => {
            let departing = first.start_departure();
            // What matters to the caller is why the store was not opened. If it does not reply, it
            // does not reply to a departure either, which then goes on in the background.
            if let Some(departing) = departing.filter(|_| !error.is_unavailable()) {
                let _ = timeout(REPLY_TIMEOUT, departing).await;
            }
            Err(error)
        }
    }
}

impl Engine {
    /// Takes the claim that was entered while the store was opened, if it is like `claim`.
    ///
    /// The opening may have taken the whole time limit. A claim that is only queued then leaves.
    pub(super) fn take_first(
        &self,
        claim: &Claim,
        on_contention: OnContention,
    ) -> Option<(Arc<Claim>, Timed<Entered>)> {
        let taken = self
            .first
            .lock()
            .take_if(|first| is_alike(&first.claim, claim));
        let mut first = taken?;
        let is_same = first.on_contention == on_contention;
        let entered = first.entered.take();
        let entered =
            entered.filter(|entered| is_same || entered.reply.standing.token().is_some())?;
        first.pending_entry = PendingEntry::Absent;
        Some((Arc::clone(&first.claim), entered))
    }
}

fn is_alike(one: &Claim, other: &Claim) -> bool {
    let of = |claim: &Claim| (claim.share, claim.lease, claim.auto_renew, claim.reserved);
    one.name == other.name && of(one) == of(other)
}

impl FirstEntry {
    fn start_departure(&mut self) -> Option<Detached<Result<bool>>> {
        let pending_entry = self.pending_entry.take()?;
        let claim = Arc::clone(&self.claim);
        Some(Detached::new(depart(
            self.calls.clone(),
            claim,
            pending_entry,
        )))
    }
}

impl Drop for FirstEntry {
    fn drop(&mut self) {
        drop(self.start_departure());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::claimant_here;
    use crate::{Name, Share};

    #[test]
    fn claim_is_taken_by_an_acquire_with_the_same_options_only() {
        let claim = |name: &str| {
            let name = Name::parse(name).expect("a valid name");
            Claim::new(
                name,
                Share::MUTEX,
                Arc::new(claimant_here("").expect("no label")),
            )
        };
        let first = claim("a");
        let changed = |change: fn(&mut Claim)| {
            let mut other = claim("a");
            change(&mut other);
            is_alike(&first, &other)
        };

        assert!(changed(|_| {}));
        assert!(!is_alike(&first, &claim("b")));
        assert!(!changed(|it| it.share = Share::READER));
        assert!(!changed(|it| it.lease += Duration::from_secs(1)));
        assert!(!changed(|it| it.auto_renew = false));
        assert!(!changed(|it| it.reserved = 1));
    }
}
