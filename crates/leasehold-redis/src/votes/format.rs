//! The formats in which a lock is kept on a master.

mod single_key;

use std::fmt::Debug;
use std::time::Duration;

use super::record::{Holder, Inspected};
use super::requests::{LeaveRequest, VoteRequest};
use crate::client::Script;
use leasehold_core::store::Claim;
use leasehold_core::{Name, Result};

pub(crate) use single_key::SingleKey;

/// A format in which a lock is kept on a master.
pub(crate) trait VoteFormat: Debug + Send + Sync {
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
pub(crate) struct Keys {
    pub(crate) lock: String,
    /// The clients that wait for the lock.
    pub(crate) waiters: String,
    /// The counter of tokens; empty in a format that has none.
    pub(crate) counter: String,
}

/// A script with its keys and arguments.
pub(crate) struct Call<'a> {
    pub(crate) script: &'static Script,
    pub(crate) keys: Vec<&'a str>,
    pub(crate) arguments: Vec<&'a str>,
}

/// The arguments of a vote that differ between masters.
#[derive(Clone, Copy)]
pub(crate) struct VoteArguments<'a> {
    /// The incarnation that the connection found; empty if quarantine is off.
    pub(crate) incarnation: &'a str,
    pub(crate) kind: VoteKind,
}

/// What a master does with a vote request if the claim does not have its vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VoteKind {
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
