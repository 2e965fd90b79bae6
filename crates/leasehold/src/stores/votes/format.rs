//! The formats in which a lock is kept on a master.

mod single_key;

use std::fmt::Debug;
use std::time::Duration;

use super::record::Inspected;
use super::requests::{LeaveRequest, VoteRequest};
use crate::stores::redis_client::Script;
use crate::{Claim, Name, Result};

pub(in crate::stores) use single_key::SingleKey;

/// A format in which a lock is kept on a master.
pub(in crate::stores) trait VoteFormat: Debug + Send + Sync {
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

    fn vote<'a>(&self, request: &'a VoteRequest, vote: VoteArguments<'a>) -> Call<'a>;

    fn leave<'a>(&self, request: &'a LeaveRequest) -> Call<'a>;

    fn inspect_script(&self) -> &'static Script;

    fn list_script(&self) -> &'static Script;

    /// Reads a record that is not empty. Returns `None` if another program wrote it.
    fn read(&self, record: &[u8], remaining: Duration) -> Option<Inspected>;
}

/// The keys of one lock.
#[derive(Clone, Debug)]
pub(in crate::stores) struct Keys {
    pub(in crate::stores) lock: String,
    /// The clients that wait for the lock.
    pub(in crate::stores) waiters: String,
    /// The counter of tokens; empty in a format that has none.
    pub(in crate::stores) counter: String,
}

/// A script with its keys and arguments.
pub(in crate::stores) struct Call<'a> {
    pub(in crate::stores) script: &'static Script,
    pub(in crate::stores) keys: Vec<&'a str>,
    pub(in crate::stores) arguments: Vec<&'a str>,
}

/// The arguments of a vote that differ between masters.
#[derive(Clone, Copy)]
pub(in crate::stores) struct VoteArguments<'a> {
    /// The incarnation that the connection found; empty if quarantine is off.
    pub(in crate::stores) incarnation: &'a str,
    pub(in crate::stores) kind: VoteKind,
}

/// What a master does with a vote request if the claim does not have its vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stores) enum VoteKind {
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
