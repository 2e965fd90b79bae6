//! Leaving a line, whatever happened on the way in.

use std::sync::Arc;

use super::calls::{StoreCalls, WeakStoreCalls};
use crate::runtime::background;
use crate::runtime::backoff::Backoff;
use crate::runtime::clock::BootInstant;
use crate::runtime::detached::Detached;
use crate::{Claim, Entered, Result};

/// A request to enter that may still be under way.
pub(crate) type PendingEnter = Detached<Result<(BootInstant, Entered)>>;

/// Leaves, and says whether it was there. A store that cannot be reached is asked again, for as long as it would keep the
/// claim by itself; if the claim is not there any more then, it has left with a question before.
///
/// A request to enter that is still under way is waited for first: leaving must not overtake it.
pub(crate) async fn depart(
    calls: StoreCalls,
    claim: Arc<Claim>,
    entering: Option<PendingEnter>,
) -> Result<bool> {
    if let Some(entering) = entering {
        // Its answer no longer matters, only that there will be no later one.
        let _ = entering.await;
    }
    let give_up = BootInstant::now().saturating_add(claim.lease);
    let (mut backoff, mut unanswered) = (Backoff::default(), false);
    loop {
        match calls.leave(&claim).await {
            // Asking again helps only where the store could not be reached.
            Err(error) if !error.is_unavailable() || BootInstant::now() >= give_up => {
                if error.is_unavailable() && !calls.guarantees().lease_expiry {
                    background::handle().spawn(leave_until_done(calls.downgrade(), claim));
                } else {
                    tracing::warn!(name = claim.name.as_str(), %error, "gave up leaving; the store must end the claim itself");
                }
                return Err(error);
            }
            Err(_) => {
                unanswered = true;
                backoff.wait().await;
            }
            Ok(was_there) => return Ok(was_there || unanswered),
        }
    }
}

/// Nobody waits for it any more; but a store without leases would keep the claim for as long as it is open.
async fn leave_until_done(calls: WeakStoreCalls, claim: Arc<Claim>) {
    let mut backoff = Backoff::default();
    loop {
        backoff.wait().await;
        let Some(calls) = calls.upgrade() else { return };
        if !calls
            .leave(&claim)
            .await
            .is_err_and(|error| error.is_unavailable())
        {
            return;
        }
    }
}
