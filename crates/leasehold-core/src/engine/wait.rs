//! Waiting in the queue for a grant, across short outages of the store, and who holds the lock if
//! there is none.

use std::slice;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::Engine;
use super::calls::{StoreCalls, timed_out};
use super::limits::{AcquireOptions, Outage};
use super::validity::Validity;
use crate::runtime::backoff::Backoff;
use crate::runtime::clock::BootInstant;
use crate::store::replies;
use crate::{Claim, ClaimId, Refused, Result, Standing, Token};

/// Waits until the store grants the claim. Returns its token, or `None` if the claim is gone.
///
/// A short outage does not end the wait while the claim is valid.
///
/// The request that waits for the grant cannot notice every outage, because on a connection that
/// delivers nothing it waits forever. The renewals of the claim notice it. So the wait also ends
/// when the validity has ended, after which the store may have dropped the claim, and when renewals
/// have been late for as long as an outage may last. In the second case one more renewal decides,
/// because this process may have been the slow one: after a suspend, a renewal has been late for
/// hours although the store replies. A validity that ends without a late renewal was no outage, and
/// the claim is gone.
pub(super) async fn wait_for_grant(
    engine: &Engine,
    validity: &Validity,
    ahead: u32,
    outage: &mut Outage,
) -> Result<Option<Token>> {
    loop {
        let has_ended = tokio::select! {
            biased;
            granted = granted(engine, validity, ahead, outage) => return granted,
            _ = validity.ended() => true,
            () = late_for_long(validity) => false,
        };

        if let Some(since) = validity.late_since()
            && (has_ended || !is_renewed_at_last(&engine.calls, validity).await?)
        {
            let waited = BootInstant::now().duration_since(since);
            outage.began_before(waited, timed_out(waited))?;
        }
        if has_ended {
            return Ok(None);
        }
    }
}

async fn granted(
    engine: &Engine,
    validity: &Validity,
    mut ahead: u32,
    outage: &mut Outage,
) -> Result<Option<Token>> {
    let calls = &engine.calls;
    let mut backoff = Backoff::default();

    loop {
        match calls.queued(&validity.claim, ahead).await {
            Ok(Standing::Held { token }) => return Ok(Some(token)),
            Ok(Standing::Gone) => return Ok(None),
            Ok(Standing::Queued { ahead: now }) => ahead = now,
            Err(error) => {
                outage.failed(error)?;
                // Waiters that have no request of their own under way notice the outage too.
                engine.renewals.hasten();
                if !replies_again(calls, &validity.claim, outage, &mut backoff).await? {
                    return Ok(None);
                }
            }
        }
    }
}

/// Waits until the store replies to a renewal of the claim; returns whether it still has the claim.
///
/// A client may know without the store that the claim is gone.
async fn replies_again(
    calls: &StoreCalls,
    claim: &Claim,
    outage: &mut Outage,
    backoff: &mut Backoff,
) -> Result<bool> {
    loop {
        backoff.wait().await;

        match calls.renew(slice::from_ref(claim), RENEWAL_MAX).await {
            Ok(leases) if leases.iter().all(Option::is_none) => return Ok(false),
            Ok(_) => {
                outage.replied();
                return Ok(true);
            }
            Err(error) => outage.failed(error)?,
        }
    }
}

/// Waits until renewals have been late for as long as an outage may last.
async fn late_for_long(validity: &Validity) {
    loop {
        let since = validity.late().await;
        let late_for = BootInstant::now().duration_since(since);
        tokio::time::sleep(Outage::LONGEST.saturating_sub(late_for)).await;

        if validity.late_since() == Some(since) {
            return;
        }
    }
}

/// Sends one last renewal before late renewals count as an outage; returns whether it succeeded.
async fn is_renewed_at_last(calls: &StoreCalls, validity: &Validity) -> Result<bool> {
    let claims = slice::from_ref(&*validity.claim);
    match calls.renew(claims, RENEWAL_MAX).await {
        Ok(_) => {
            validity.set_late(false);
            Ok(true)
        }
        Err(error) if error.is_unavailable() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Inspects the lock that has refused a claim. Without a reply in time, nothing is known of it.
///
/// It takes at most nine tenths of the time that the reply timeout leaves since `begun_at`, so that
/// a refusal without a holder is still returned within all of it.
///
/// The future is boxed, because most acquires never need it.
#[cold]
pub(super) fn read_refusal(
    calls: &StoreCalls,
    options: &AcquireOptions,
    claim: Option<ClaimId>,
    begun_at: Instant,
) -> BoxFuture<'static, Refused> {
    let calls = calls.clone();
    let name = options.name.clone();
    let left = options.reply_timeout.saturating_sub(begun_at.elapsed());
    let limit = left * 9 / 10;
    Box::pin(async move {
        match calls.inspect(&name, limit).await {
            Ok(lock_state) => replies::refused(lock_state, claim),
            Err(_) => Refused::new(name),
        }
    })
}

/// How long a renewal waits that shows whether the store replies again. Another one follows it, until
/// the outage is too long.
const RENEWAL_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;

    use super::*;
    use crate::store::{Intercept, Intercepted, claimant_here};
    use crate::stores::Memory;
    use crate::{Claim, Error, ErrorKind, Name, Share, Store};

    #[derive(Debug)]
    struct Renewing {
        store: Memory,
        failure: Option<ErrorKind>,
    }

    #[async_trait]
    impl Intercept for Renewing {
        fn inner(&self) -> &dyn Store {
            &self.store
        }

        async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
            match self.failure {
                Some(kind) => Err(Error::for_test(kind)),
                None => self.store.renew(claims).await,
            }
        }
    }

    /// The process may have been stopped for longer than an outage, and the store was there.
    ///
    /// Shows G-26.
    #[tokio::test]
    async fn late_renewals_are_no_outage_if_the_store_replies_to_the_last_one() {
        for (failure, is_renewed) in [
            (None, Ok(true)),
            (Some(ErrorKind::Unavailable), Ok(false)),
            (Some(ErrorKind::Denied), Err(ErrorKind::Denied)),
        ] {
            let store = Memory::new();
            let store = Arc::new(Intercepted(Renewing { store, failure }));
            let engine = Engine::new(store, "memory:").expect("it starts");
            let name = Name::parse("a").expect("a valid name");
            let info = Arc::new(claimant_here("").expect("no label"));
            let claim = Arc::new(Claim::new(name, Share::MUTEX, info));
            let validity = Validity::waiting(claim, BootInstant::FAR_FUTURE);
            validity.set_late(true);

            let renewed = is_renewed_at_last(&engine.calls, &validity).await;
            assert_eq!(renewed.map_err(|error| error.kind()), is_renewed);
            assert_eq!(validity.late_since().is_none(), is_renewed == Ok(true));
        }
    }
}
