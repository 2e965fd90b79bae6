//! What executes the requests of the clients, and the facts about claims that the rules need.

use leasehold::store::ClaimId;

use crate::plan::{BackendPlan, Profile};
use crate::redis_servers::Servers;
use crate::server::{Cause, Ended, Nanos, QueueEntry, Server};

/// The servers of a history.
///
/// The contract's server shows the rules every claim. Of the servers on Redis they know only what
/// clients see, so a fact that is missing never violates a rule.
pub(crate) enum Backend {
    Contract(Server),
    Redis(Servers),
}

impl Backend {
    pub(crate) fn start(profile: &Profile) -> Self {
        match &profile.backend {
            BackendPlan::Contract => Self::Contract(Server::new(profile)),
            BackendPlan::Redis(plan) => Self::Redis(Servers::start(plan, profile.lease)),
        }
    }

    pub(crate) fn contract(&self) -> Option<&Server> {
        match self {
            Self::Contract(server) => Some(server),
            Self::Redis(_) => None,
        }
    }

    /// Returns the server of the contract.
    ///
    /// # Panics
    /// On Redis, where no plan has what needs it.
    pub(crate) fn contract_mut(&mut self) -> &mut Server {
        match self {
            Self::Contract(server) => server,
            Self::Redis(_) => panic!("a history on Redis has no such request and no such fault"),
        }
    }

    pub(crate) fn redis_mut(&mut self) -> Option<&mut Servers> {
        match self {
            Self::Contract(_) => None,
            Self::Redis(servers) => Some(servers),
        }
    }

    pub(crate) fn entry(&self, id: ClaimId) -> Option<&QueueEntry> {
        self.contract()?.entry(id)
    }

    /// Returns how a claim ended that was once in a queue.
    pub(crate) fn ended(&self, id: ClaimId) -> Option<Ended> {
        self.contract()?.ended.get(&id).copied()
    }

    /// Returns whether a claim may be gone although its client has not removed it.
    pub(crate) fn may_be_gone(&self, id: ClaimId) -> bool {
        self.contract().is_none() || self.ended(id).is_some()
    }

    pub(crate) fn was_evicted(&self, id: ClaimId) -> bool {
        self.ended(id)
            .is_some_and(|ended| ended.cause == Cause::Evicted)
    }

    /// Returns the claims of a client, with their names and the ends of their leases.
    pub(crate) fn entries_of(&self, client: usize) -> Vec<(u8, ClaimId, Nanos)> {
        let server = self.contract();
        server.map_or_else(Vec::new, |server| server.entries_of(client))
    }

    /// Returns until when the server keeps a held claim, or kept it; `None` if it never had it.
    ///
    /// A claim that an operator removed counts until the lease that its client knows of.
    pub(crate) fn kept_until(&self, id: ClaimId) -> Option<Nanos> {
        match self.entry(id) {
            Some(entry) if entry.token.is_some() => Some(entry.expires_at),
            Some(_) => Some(0),
            None => self.ended(id).map(|ended| ended.kept_until),
        }
    }

    /// Returns whether the record has a completion of a claim.
    pub(crate) fn is_completed_by(&self, name: u8, id: ClaimId) -> bool {
        let server = self.contract();
        server.is_none_or(|server| server.records.read(name, 0).is_of(id))
    }

    /// Returns whether the record says that a job is done.
    pub(crate) fn is_done(&self, name: u8, job: u32) -> bool {
        let server = self.contract();
        server.is_some_and(|server| server.records.is_done(name, job))
    }
}
