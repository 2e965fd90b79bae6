//! The formats in which a lock is kept on a master, and the requests that they write.

mod fenced;
mod single_key;

use std::fmt::Debug;
use std::time::Duration;

use super::record::{Holder, Inspected};
use crate::client::{Script, Session, decode};
use leasehold_core::store::Claim;
use leasehold_core::{Name, Result};

pub(super) use fenced::Fenced;
pub(super) use single_key::SingleKey;

/// A format in which a lock is kept on a master.
pub(super) trait VoteFormat: Debug + Send + Sync {
    /// Returns the keys of a lock.
    fn keys(&self, name: &Name) -> Result<Keys>;

    /// Returns the pattern of the keys of names that begin with `prefix`.
    fn pattern(&self, prefix: &str) -> String;

    /// Returns the name to which a key belongs.
    fn name_of(&self, key: &str) -> Option<Name>;

    /// Whether a master remembers the last token, and so refuses a request that arrives late.
    fn remembers_last_token(&self) -> bool;

    /// Whether each grant of a name has a higher token than the one before.
    fn guarantees_tokens(&self) -> bool;

    /// Returns the record of a claim that holds the lock.
    fn record(&self, claim: &Claim, token: u64, client: &str) -> String;

    /// Returns the call that requests a vote. `incarnation` is the one that the connection found;
    /// it is empty if quarantine is off.
    fn vote<'a>(&self, request: &'a VoteRequest, kind: VoteKind, incarnation: &'a str) -> Call<'a>;

    fn leave<'a>(&self, request: &'a LeaveRequest) -> Call<'a>;

    fn inspect_script(&self) -> &'static Script;

    fn list_script(&self) -> &'static Script;

    /// Reads a record. Returns `None` if another program wrote it.
    fn read(&self, record: &[u8], remaining: Duration) -> Option<Inspected>;
}

impl dyn VoteFormat {
    /// Reads the record in a reply to a claim that was refused; `None` if it is empty.
    pub(super) fn holder(&self, record: &str, remaining: Duration) -> Option<Holder> {
        if record.is_empty() {
            return None;
        }
        // A lease without an end has no remaining time.
        let remaining = remaining.max(Duration::from_millis(1));
        self.read(record.as_bytes(), remaining)?.holder
    }
}

/// The keys of one lock.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    pub(super) lock: String,
    /// The clients that wait for the lock.
    pub(super) waiters: String,
    /// The counter of tokens; empty in a format that has none.
    pub(super) counter: String,
}

/// A script with its keys and arguments.
pub(super) struct Call<'a> {
    pub(super) script: &'static Script,
    pub(super) keys: Vec<&'a str>,
    pub(super) arguments: Vec<&'a str>,
}

/// What a master does with a vote request if the claim does not have its vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VoteKind {
    /// Gives its vote, if no other claim has it.
    Grant,
    /// Gives its vote only if it remembers the last token. Otherwise the hold may have been lost.
    Keep,
    /// Gives its vote again, marked with the number of the renewal.
    Restore,
}

impl VoteKind {
    /// Returns the argument of the script.
    pub(super) fn argument(self) -> &'static str {
        match self {
            Self::Grant => "",
            Self::Keep => "K",
            Self::Restore => "R",
        }
    }
}

/// Requests the vote of a master for a claim and a token.
#[derive(Debug)]
pub(super) struct VoteRequest {
    pub(super) format: &'static dyn VoteFormat,
    pub(super) keys: Keys,
    /// The claim's id.
    pub(super) id: String,
    pub(super) token: u64,
    pub(super) record: String,
    /// In milliseconds, like all lifetimes here.
    pub(super) record_life: String,
    /// Empty if the format has no counter.
    pub(super) counter_life: String,
    /// The client, and since when it waits; empty if it needs no notification.
    pub(super) waiter: String,
    pub(super) kind: VoteKind,
}

/// Takes the vote of a master back.
#[derive(Debug)]
pub(super) struct LeaveRequest {
    pub(super) format: &'static dyn VoteFormat,
    pub(super) keys: Keys,
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

impl LeaveRequest {
    /// Returns the arguments that the scripts of all formats have.
    pub(super) fn arguments(&self) -> Vec<&str> {
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
}

impl Call<'_> {
    pub(super) async fn run(&self, session: &Session) -> Result<String> {
        let reply = self.script.run(session, &self.keys, &self.arguments).await;
        decode(reply?)
    }
}
