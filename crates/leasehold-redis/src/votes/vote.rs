//! A request to one master, and what its reply means.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;

use super::format::{LeaveRequest, VoteKind, VoteRequest};
use super::master::Master;
use super::quorum::MasterVote;
use super::record::{VoteOutcome, VoteReply};
use super::tracked_claim::TrackedClaim;
use crate::client;
use crate::client::Handshake;
use leasehold_core::Result;
use leasehold_core::internal::BootInstant;

/// Requests the vote of a master, and records in the claim what the master replies. The vote counts
/// until `valid_until`.
///
/// `wait` is how long the request waits for a connection.
pub(super) async fn request_vote(
    master: &Master,
    request: &VoteRequest,
    wait: Duration,
    tracked: &TrackedClaim,
    valid_until: BootInstant,
) -> Result<MasterVote> {
    let _master_lock = lock_master(Some(tracked), master).await;
    let (session, incarnation) = master.connected(wait).await?;

    // A master on which another client broke the hold must not restore it.
    let kind = match request.kind {
        VoteKind::Restore if tracked.is_broken_on(master.at) => VoteKind::Keep,
        kind => kind,
    };
    let found = incarnation.as_deref().unwrap_or_default();
    let call = request.format.vote(request, kind, found);
    let reply = call.run(&session).await?;
    let Some(reply) = VoteReply::parse(&reply, &request.id) else {
        session.close();
        return Err(client::protocol_error());
    };

    master.silent.store(false, Ordering::Relaxed);
    let vote = judge(request, master, tracked, &incarnation, &reply);
    if !reply.same_incarnation {
        // The master was emptied. The next handshake gives it a new incarnation.
        master.links.reconnect();
    }
    tracked.saw_token(reply.last_token);
    if vote == MasterVote::Granted {
        tracked.granted_by(master.at, request.token, valid_until);
    }
    Ok(vote)
}

fn judge(
    request: &VoteRequest,
    master: &Master,
    tracked: &TrackedClaim,
    incarnation: &Handshake,
    reply: &VoteReply,
) -> MasterVote {
    let remaining = reply.remaining;
    match reply.outcome {
        VoteOutcome::Held(token) => {
            let holder = request.format.holder(&reply.holder, remaining);
            return MasterVote::HeldByOther {
                token,
                remaining,
                holder: holder.map(Box::new),
            };
        }
        VoteOutcome::Stale(_) => return MasterVote::Stale,
        VoteOutcome::Granted => {}
    }

    if !request.format.remembers_last_token() {
        if tracked.renewal_counts(master.at, reply.renewal) {
            return MasterVote::Granted;
        }
        return MasterVote::Restored;
    }
    let quarantine = &master.quarantine;
    if quarantine.counts(incarnation, reply.same_incarnation) {
        return MasterVote::Granted;
    }
    MasterVote::Quarantined(format!("{} was {}", master.url, quarantine.message()))
}

/// What a master did with a leave request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaveReply {
    /// The claim did not have the vote.
    NotHeld,
    Freed,
    /// The master freed its vote and notified a waiter.
    HandedOver,
}

impl LeaveReply {
    /// Reads the reply to a request of this claim.
    pub(super) fn parse(reply: &str, claim: &str) -> Option<Self> {
        match reply.strip_suffix(claim)? {
            "0" => Some(Self::NotHeld),
            "1" => Some(Self::Freed),
            "2" => Some(Self::HandedOver),
            _ => None,
        }
    }
}

/// Requests a master to take back its vote. The caller has locked the master.
pub(super) async fn request_leave(master: &Master, request: &LeaveRequest) -> Result<LeaveReply> {
    let (session, _) = master.session()?;
    let reply = request.format.leave(request).run(&session).await?;
    LeaveReply::parse(&reply, &request.id).ok_or_else(|| {
        session.close();
        client::protocol_error()
    })
}

/// Waits until no other request about this claim is in flight to a master that forgets tokens.
pub(super) async fn lock_master(
    tracked: Option<&TrackedClaim>,
    master: &Master,
) -> Option<OwnedMutexGuard<()>> {
    let lock = tracked?.details.master_locks.get(master.at)?;
    Some(Arc::clone(lock).lock_owned().await)
}
