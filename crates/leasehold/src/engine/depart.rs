//! Leaving the queue, whichever step of entering it was under way.

use std::sync::Arc;

use super::backlog::leave_later;
use super::calls::{StoreCalls, Timed};
use crate::runtime::backoff::Backoff;
use crate::runtime::clock::BootInstant;
use crate::runtime::detached::Detached;
use crate::{Claim, Entered, Error, Result};

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
/// A request to enter that is still under way completes first: leaving must not overtake it.
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
        let _ = entering.await;
    }

    let give_up_at = BootInstant::now().saturating_add(calls.lease_of(&claim));
    let mut backoff = Backoff::default();
    let mut had_no_reply = false;
    loop {
        match calls.leave(&claim).await {
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

#[cold]
fn give_up(calls: &StoreCalls, claim: Arc<Claim>, error: &Error) {
    if error.is_unavailable() {
        leave_later(calls, claim);
        return;
    }

    let name = claim.name.as_str();
    tracing::warn!(name, %error, "the claim cannot leave; it remains until the store ends it");
}
