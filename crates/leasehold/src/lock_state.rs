//! A line as people see it.

use std::time::Duration;

use crate::{ClaimId, ClaimantInfo, Name, Share, Standing, Token};

/// Who holds a lock and who waits for it, in order, at one moment.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// let _guard = locks.mutex("a").label("the first").acquire().await?;
/// let lock_state = locks.inspect("a").await?;
/// assert_eq!(lock_state.holders().next().unwrap().info.label, "the first");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockState {
    /// Which lock.
    pub name: Name,
    /// Holders and waiters, in order of arrival.
    pub entries: Vec<Entry>,
    /// The token of the last grant, if the store still knows it.
    pub last_token: Option<Token>,
    /// Those who hold the lock without being in line: by flock(1) on the file store.
    pub external_holders: Vec<ExternalHolder>,
    /// Where several servers keep the lock together, what each of them knows.
    pub servers: Vec<ServerStatus>,
}

/// What one of several servers knows of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStatus {
    /// Which server, as in its URL without a password.
    pub server: String,
    /// Whom it has given its vote, and for which token.
    pub holder: Option<(ClaimId, Token)>,
    /// The highest token it remembers.
    pub last_token: Option<Token>,
    /// For how much longer its vote is given.
    pub remaining: Duration,
    /// Why it cannot be asked, or its vote does not count.
    pub error: Option<String>,
}

/// What one of several servers has granted to a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerVote {
    /// Which server, as in its URL without a password.
    pub server: String,
    /// How long its vote may be counted on, from its last answer: zero if it has given none, or it has run out.
    pub remaining: Duration,
}

/// A process that holds a lock without being in line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExternalHolder {
    /// The process, as this machine or container numbers it.
    pub pid: u32,
    /// What the kernel calls its program; empty if it does not say.
    pub program: String,
}

/// One claim in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Which claim.
    pub id: ClaimId,
    /// How much it takes.
    pub share: Share,
    /// Whether it holds or waits.
    pub standing: Standing,
    /// Who it is.
    pub info: ClaimantInfo,
}

impl LockState {
    /// Creates the state of a lock that is free and was never held.
    #[must_use]
    pub fn new(name: Name) -> Self {
        Self {
            name,
            entries: Vec::new(),
            last_token: None,
            external_holders: Vec::new(),
            servers: Vec::new(),
        }
    }

    /// Those who hold.
    pub fn holders(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.token().is_some())
    }

    /// Those who wait, next first.
    pub fn waiters(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.token().is_none())
    }
}

impl Entry {
    /// Creates an entry of a queue.
    #[must_use]
    pub fn new(id: ClaimId, share: Share, standing: Standing, info: ClaimantInfo) -> Self {
        Self {
            id,
            share,
            standing,
            info,
        }
    }

    /// The token, if this claim holds.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        self.standing.token()
    }
}

impl ServerStatus {
    /// Creates the status of a server that has no vote for anyone.
    #[must_use]
    pub fn new(server: String) -> Self {
        Self {
            server,
            holder: None,
            last_token: None,
            remaining: Duration::ZERO,
            error: None,
        }
    }
}

impl ServerVote {
    /// Creates the vote of a server, which counts for `remaining`.
    #[must_use]
    pub fn new(server: String, remaining: Duration) -> Self {
        Self { server, remaining }
    }
}

impl ExternalHolder {
    /// Creates an external holder.
    #[must_use]
    pub fn new(pid: u32, program: String) -> Self {
        Self { pid, program }
    }
}
