//! A claim of the past, with which its own client tries to change the lock.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use leasehold::Name;
use leasehold::store::{Claim, OnContention, Share, Store, claimant_here};
use tokio::time::{sleep, timeout};

use super::REPLY_TIMEOUT;

/// The name of the lock that only the intruder takes.
pub const INTRUDER_NAME: &str = "intruder";
/// The lease of the first claim, where the store ends claims by time.
const SHORT_LEASE: Duration = Duration::from_millis(60);
/// How often the intruder checks whether the first claim has ended.
const RETRY: Duration = Duration::from_millis(20);
/// How many times the second claim may be refused until the first one has ended.
const TRIES: usize = 20;

/// For how long a request to leave is repeated: longer than a fault without replies.
const LEAVING_MAX: Duration = Duration::from_secs(30);

/// A claim that has ended, and one of the same client that holds the lock now.
#[derive(Debug)]
pub struct StaleClaim {
    past: Claim,
    present: Claim,
    grants: Grants,
}

/// Whether the store may lose grants that it has confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grants {
    /// It keeps them.
    Kept,
    /// A failover may lose the last ones.
    MayBeLost,
}

impl StaleClaim {
    /// Acquires with one claim, waits until it has ended, and acquires with another.
    ///
    /// Returns `None` if a request got no reply.
    ///
    /// # Errors
    /// If the host has no valid name.
    pub async fn make(store: &dyn Store, name: &Name, grants: Grants) -> Result<Option<Self>> {
        let past = claim(name, SHORT_LEASE)?;
        let present = claim(name, Duration::from_secs(1))?;

        let entered = reply(store.enter(&past, OnContention::Fail)).await;
        let was_held = entered.is_some_and(|entered| entered.standing.token().is_some());
        if !store.guarantees().lease_expiry {
            reply(store.leave(&past)).await;
        }
        let is_held = was_held && enters(store, &present).await;

        let stale = Self {
            past,
            present,
            grants,
        };
        if is_held {
            return Ok(Some(stale));
        }
        stale.end(store).await;
        Ok(None)
    }

    /// Renews and releases the ended claim. Both must fail. A store that checks only the client
    /// permits it, and so does one that renews every claim that holds.
    ///
    /// Returns whether both requests got a reply.
    ///
    /// # Errors
    /// If the ended claim was renewed or released.
    pub async fn intrude(&self, store: &dyn Store) -> Result<bool> {
        let past = &self.past;
        let renewed = reply(store.renew(std::slice::from_ref(past))).await;
        let left = reply(store.leave(past)).await;

        let was_renewed = renewed
            .as_ref()
            .is_some_and(|leases| leases.iter().any(Option::is_some));
        if (was_renewed || left == Some(true)) && self.is_present_lost(store).await {
            return Ok(false);
        }
        ensure!(!was_renewed, "a claim that had ended was renewed: {past:?}");
        // Of several masters, a minority may still have votes for the ended claim.
        let has_votes = store.extensions().votes.is_some();
        ensure!(
            left != Some(true) || has_votes,
            "a claim that had ended was released: {past:?}"
        );
        Ok(renewed.is_some() && left.is_some())
    }

    /// Whether a failover has lost the grant of the present claim. To the new master, the ended
    /// claim is then the last one that held.
    async fn is_present_lost(&self, store: &dyn Store) -> bool {
        if self.grants == Grants::Kept {
            return false;
        }
        let renewed = reply(store.renew(std::slice::from_ref(&self.present))).await;
        renewed.is_none_or(|leases| leases.iter().all(Option::is_none))
    }

    /// Leaves with both claims, and repeats that until the store replies: its clock may have gone
    /// back, so that the leases end late.
    pub async fn end(self, store: &dyn Store) -> bool {
        leave_repeatedly(store, &self.past).await;
        leave_repeatedly(store, &self.present).await == Some(true)
    }
}

async fn leave_repeatedly(store: &dyn Store, claim: &Claim) -> Option<bool> {
    let leaving = async {
        loop {
            if let Some(was_there) = reply(store.leave(claim)).await {
                return was_there;
            }
            sleep(RETRY).await;
        }
    };
    timeout(LEAVING_MAX, leaving).await.ok()
}

/// Lets a client use its ended claim against its own present one. Returns whether all requests got
/// a reply.
///
/// # Errors
/// If the ended claim was renewed or released.
///
/// Shows S6.
pub(super) async fn use_stale_claim(
    store: &dyn Store,
    name: &Name,
    grants: Grants,
) -> Result<bool> {
    let Some(stale) = StaleClaim::make(store, name, grants).await? else {
        return Ok(false);
    };

    let replied = stale.intrude(store).await?;
    stale.end(store).await;
    Ok(replied)
}

/// Enters the second claim as soon as the first one has ended.
async fn enters(store: &dyn Store, present: &Claim) -> bool {
    for _ in 0..TRIES {
        let entered = reply(store.enter(present, OnContention::Fail)).await;
        if entered.is_some_and(|entered| entered.standing.token().is_some()) {
            return true;
        }
        sleep(RETRY).await;
    }
    false
}

fn claim(name: &Name, lease: Duration) -> Result<Claim> {
    let info = Arc::new(claimant_here("")?);
    let mut claim = Claim::new(name.clone(), Share::MUTEX, info);
    claim.lease = lease;
    claim.auto_renew = false;
    Ok(claim)
}

/// Returns the reply, or `None` if the store did not reply in time or refused the request.
async fn reply<T>(request: impl Future<Output = leasehold::Result<T>>) -> Option<T> {
    timeout(REPLY_TIMEOUT, request).await.ok()?.ok()
}
