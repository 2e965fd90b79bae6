//! The requests that a client sends to each master, and what a reply means.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;

use super::format::{Call, Keys, VoteArguments, VoteFormat, VoteKind};
use super::master::Master;
use super::record::{Holder, VoteReply};
use super::tracked_claim::TrackedClaim;
use super::voting::VoteOutcome;
use crate::client;
use crate::client::{Handshake, Session, decode};
use leasehold_core::Result;

/// Requests the vote of a master for a claim and a token.
#[derive(Debug)]
pub(crate) struct VoteRequest {
    pub(super) format: &'static dyn VoteFormat,
    pub(crate) keys: Keys,
    /// The claim's id.
    pub(super) id: String,
    pub(crate) record: String,
    /// In milliseconds, like all lifetimes here.
    pub(crate) record_life: String,
    /// Empty if the format has no counter.
    pub(super) counter_life: String,
    /// The client, and since when it waits; empty if it needs no notification.
    pub(crate) waiter: String,
    pub(super) kind: VoteKind,
}

/// A master's reply, and what it means for the claim.
#[derive(Clone, Debug)]
pub(super) struct MasterReply {
    pub(super) last_token: u64,
    pub(super) vote: MasterVote,
}

/// What the reply of a master means for the claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MasterVote {
    Granted,
    /// Granted by a master that may have forgotten another hold.
    Quarantined,
    /// Granted again after the master had lost its vote. It counts once a renewal has succeeded
    /// without it; until then another claim may have held the lock.
    Restored,
    /// Another claim has the vote; the duration is zero if its lease has no end.
    HeldByOther {
        token: u64,
        remaining: Duration,
        /// `None` if this client waits, and if the holder is of another library.
        holder: Option<Box<Holder>>,
    },
    /// The token is not above the last one of this master.
    Stale,
}

impl VoteRequest {
    /// Sends the request to a master. `wait` is how long it waits for a connection.
    pub(super) async fn send(
        &self,
        master: &Master,
        wait: Duration,
        tracked: &TrackedClaim,
    ) -> Result<MasterReply> {
        let _master_lock = lock_master(Some(tracked), master).await;
        let (session, incarnation) = master.connected(wait).await?;

        let arguments = VoteArguments {
            incarnation: incarnation.as_deref().unwrap_or_default(),
            kind: self.kind_for(master, tracked),
        };
        let reply = self.format.vote(self, arguments).run(&session).await?;
        let Some(reply) = VoteReply::parse(&reply, &self.id) else {
            session.close();
            return Err(client::protocol_error());
        };

        master.silent.store(false, Ordering::Relaxed);
        let vote = self.judge(master, tracked, &incarnation, &reply);
        if !reply.same_incarnation {
            // The master was emptied. The next handshake gives it a new incarnation.
            master.links.reconnect();
        }
        Ok(MasterReply {
            last_token: reply.last_token,
            vote,
        })
    }

    /// A master on which another client broke the hold must not restore it.
    fn kind_for(&self, master: &Master, tracked: &TrackedClaim) -> VoteKind {
        if self.kind == VoteKind::Restore && tracked.is_broken_on(master.at) {
            return VoteKind::Keep;
        }
        self.kind
    }

    fn judge(
        &self,
        master: &Master,
        tracked: &TrackedClaim,
        incarnation: &Handshake,
        reply: &VoteReply,
    ) -> MasterVote {
        let remaining = reply.remaining;
        match reply.outcome {
            VoteOutcome::Held(token) => {
                let holder = self.format.holder(&reply.holder, remaining);
                return MasterVote::HeldByOther {
                    token,
                    remaining,
                    holder: holder.map(Box::new),
                };
            }
            VoteOutcome::Stale(_) => return MasterVote::Stale,
            VoteOutcome::Granted => {}
        }

        if !self.format.remembers_last_token() {
            if tracked.renewal_counts(master.at, reply.renewal) {
                return MasterVote::Granted;
            }
            return MasterVote::Restored;
        }
        if master
            .quarantine
            .counts(incarnation, reply.same_incarnation)
        {
            return MasterVote::Granted;
        }
        MasterVote::Quarantined
    }
}

/// Takes the vote of a master back.
#[derive(Debug)]
pub(crate) struct LeaveRequest {
    pub(super) format: &'static dyn VoteFormat,
    pub(crate) keys: Keys,
    /// The claim's id.
    pub(super) id: String,
    pub(super) hexadecimal_id: String,
    /// The highest token that the claim has proposed; zero if it is unknown.
    pub(super) highest_token: String,
    pub(super) client: String,
    pub(super) scope: LeaveScope,
    /// Empty if the format has no counter.
    pub(super) counter_life: String,
}

/// Which clients a master notifies of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaveScope {
    /// None: the claim never held the lock.
    Quiet,
    /// The first waiter. Other claims of this client still wait.
    KeepWaiters,
    /// The first waiter. This client no longer waits.
    StopWaiting,
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

impl LeaveRequest {
    /// Returns the arguments that the scripts of all formats have.
    pub(crate) fn arguments(&self) -> Vec<&str> {
        let departing_client = match self.scope {
            LeaveScope::StopWaiting => &self.client,
            LeaveScope::Quiet | LeaveScope::KeepWaiters => "",
        };
        let quiet = match self.scope {
            LeaveScope::Quiet => "Q",
            LeaveScope::KeepWaiters | LeaveScope::StopWaiting => "",
        };

        vec![
            &self.id,
            &self.highest_token,
            &self.client,
            departing_client,
            quiet,
        ]
    }

    pub(super) async fn send(&self, master: &Master) -> Result<LeaveReply> {
        let (session, _) = master.session()?;
        let reply = self.format.leave(self).run(&session).await?;
        match reply.split_at_checked(1) {
            Some(("0", id)) if id == self.id => Ok(LeaveReply::NotHeld),
            Some(("1", id)) if id == self.id => Ok(LeaveReply::Freed),
            Some(("2", id)) if id == self.id => Ok(LeaveReply::HandedOver),
            _ => {
                session.close();
                Err(client::protocol_error())
            }
        }
    }
}

impl Call<'_> {
    async fn run(&self, session: &Session) -> Result<String> {
        let reply = self.script.run(session, &self.keys, &self.arguments).await;
        decode(reply?)
    }
}

/// Waits until no other request about this claim is in flight to a master that forgets tokens.
pub(super) async fn lock_master(
    tracked: Option<&TrackedClaim>,
    master: &Master,
) -> Option<OwnedMutexGuard<()>> {
    let lock = tracked?.details.master_locks.get(master.at)?;
    Some(Arc::clone(lock).lock_owned().await)
}
