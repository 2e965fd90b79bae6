//! Leaving a line, whatever happened on the way in.

use std::sync::Arc;

use super::call::{ClosingDoor, Door, Pauses};
use crate::background::{self, Finish};
use crate::clock::Moment;
use crate::{Claim, Entered, Result};

/// A request to enter that may still be under way.
pub(crate) type Entering = Finish<Result<(Moment, Entered)>>;

/// Leaves, and says whether it was there. A store that cannot be reached is asked again, for as long as it would keep the
/// claim by itself; if the claim is not there any more then, it has left with a question before.
///
/// A request to enter that is still under way is waited for first: leaving must not overtake it.
pub(crate) async fn depart(door: Door, claim: Arc<Claim>, entering: Option<Entering>) -> Result<bool> {
    if let Some(entering) = entering {
        // Its answer no longer matters, only that there will be no later one.
        let _ = entering.await;
    }
    let give_up = Moment::now().after(claim.lease);
    let (mut pauses, mut unanswered) = (Pauses::default(), false);
    loop {
        match door.leave(&claim).await {
            // Asking again helps only where the store could not be reached.
            Err(error) if !error.is_unavailable() || Moment::now() >= give_up => {
                if error.is_unavailable() && !door.promises().expiry {
                    background::handle().spawn(leave_at_last(door.closing(), claim));
                } else {
                    tracing::warn!(name = claim.name.as_str(), %error, "gave up leaving; the store must end the claim itself");
                }
                return Err(error);
            }
            Err(_) => {
                unanswered = true;
                pauses.next().await;
            }
            Ok(was_there) => return Ok(was_there || unanswered),
        }
    }
}

/// Nobody waits for it any more; but a store without leases would keep the claim for as long as it is open.
async fn leave_at_last(door: ClosingDoor, claim: Arc<Claim>) {
    let mut pauses = Pauses::default();
    loop {
        pauses.next().await;
        let Some(door) = door.open() else { return };
        if !door.leave(&claim).await.is_err_and(|error| error.is_unavailable()) {
            return;
        }
    }
}
