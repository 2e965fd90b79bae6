//! Leaving a line, whatever happened on the way in.

use super::call::{Door, Pauses};
use crate::background::Finish;
use crate::clock::Moment;
use crate::{Claim, Entered, Result};

/// A request to enter that may still be under way.
pub(crate) type Entering = Finish<Result<(Moment, Entered)>>;

/// Leaves, and does not give up before the store would have ended the claim by itself; says whether it was there.
///
/// A request to enter that is still under way is waited for first: leaving must not overtake it.
pub(crate) async fn depart(door: Door, claim: Claim, entering: Option<Entering>) -> Result<bool> {
    if let Some(entering) = entering {
        // Its answer no longer matters, only that there will be no later one.
        let _ = entering.await;
    }
    let give_up = Moment::now().after(claim.lease);
    let mut pauses = Pauses::default();
    loop {
        match door.leave(&claim).await {
            Err(error) if Moment::now() >= give_up => {
                tracing::warn!(name = claim.name.as_str(), %error, "gave up leaving; the store must end the claim itself");
                return Err(error);
            }
            Err(_) => pauses.next().await,
            done => return done,
        }
    }
}
