//! The state of a lock, in readable form.

use std::fmt;
use std::time::Duration;

use crate::claimant_info::foreign_claimant;
use crate::name::Escaped;
use crate::{ClaimId, ClaimantInfo, EndedHold, Name, Share, Standing, Token};

/// The holders and waiters of a lock at one moment.
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
    /// The name of the lock.
    pub name: Name,
    /// Holders and waiters, in order of arrival.
    pub entries: Vec<Entry>,
    /// The token of the last grant, if the store still has it.
    pub last_token: Option<Token>,
    /// The last hold that its client did not release, if the store knows why it has ended: the
    /// stores on one Redis server, Sentinel, Cluster and PostgreSQL do, for a day after its end.
    pub ended: Option<EndedHold>,
    /// Processes that hold the lock by flock(1) on the file store, without an entry in the queue.
    pub external_holders: Vec<ExternalHolder>,
    /// The status of each server, if several servers keep the lock together.
    pub servers: Vec<ServerStatus>,
}

/// Creates the state of a lock that is free and was never held.
#[must_use]
pub fn lock_state(name: Name) -> LockState {
    LockState {
        name,
        entries: Vec::new(),
        last_token: None,
        ended: None,
        external_holders: Vec::new(),
        servers: Vec::new(),
    }
}

/// Returns a state without the times that pass by themselves, so that two states differ only if the
/// lock has changed.
#[must_use]
pub fn comparable(lock_state: &LockState) -> LockState {
    let mut comparable = lock_state.clone();
    comparable.servers.clear();
    for entry in &mut comparable.entries {
        entry.lease_left = None;
        for pin in &mut entry.pins {
            pin.overdue = None;
        }
    }
    comparable
}

impl LockState {
    /// Returns the claims that hold the lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let guard = locks.semaphore("gpu", 2).acquire().await?;
    /// let lock_state = locks.inspect("gpu").await?;
    /// assert_eq!(lock_state.holders().count(), 1);
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    pub fn holders(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.token().is_some())
    }

    /// Returns the claims that wait, the next one first.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let lock_state = locks.inspect("nightly").await?;
    /// for waiter in lock_state.waiters() {
    ///     println!("{} waits", waiter.info);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn waiters(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.token().is_none())
    }

    /// Returns how the hold before a grant has ended; `None` if its client released it, or if the
    /// store does not know.
    ///
    /// A client that has taken over passes its own token:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let guard = locks.mutex("nightly").acquire().await?;
    /// if let Some(ended) = locks.inspect("nightly").await?.ended_before(guard.token()) {
    ///     println!("taken over from token {}: {}", ended.token, ended.reason);
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn ended_before(&self, token: Token) -> Option<&EndedHold> {
        let ended = self.ended.as_ref()?;
        (ended.token < token && ended.followed_by == token).then_some(ended)
    }

    /// Returns a claim that has votes with this token, but not those of a majority.
    ///
    /// If its client has ended, nothing but `break` and the end of the leases takes them back.
    pub(crate) fn vote(&self, token: Token) -> Option<Entry> {
        let mut votes = self.servers.iter().filter_map(|server| server.holder);
        let (id, token) = votes.find(|(_, voted)| *voted == token)?;

        let info = foreign_claimant("unknown", "votes of a minority".to_owned());
        Some(entry(id, Share::MUTEX, Standing::Held { token }, info))
    }
}

/// One claim in a queue.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// let guard = locks.mutex("nightly").label("backup").acquire().await?;
/// let lock_state = locks.inspect("nightly").await?;
/// let entry = &lock_state.entries[0];
/// assert_eq!((entry.id, entry.info.label.as_str()), (guard.claim_id(), "backup"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The identity of the claim.
    pub id: ClaimId,
    /// The part of the capacity that it takes.
    pub share: Share,
    /// Whether it holds or waits.
    pub standing: Standing,
    /// How many tokens below its own the grant reserved, for passes inside the process.
    pub reserved: u32,
    /// The process behind it.
    pub info: ClaimantInfo,
    /// How long the store keeps it without a renewal, if the format of another library shows that.
    pub lease_left: Option<Duration>,
    /// Whether its client is connected to the store; `None` if the store does not know.
    ///
    /// Redis knows it of the first 100 claims with crash detection. A waiter without a connection
    /// is passed over. A holder without one loses the lock once the crash grace is over, unless it
    /// connects again.
    pub connected: Option<bool>,
    /// The process that holds, if it is not the one that `info` names.
    pub process: Option<ClaimProcess>,
    /// The transactions that pin its grant, on a store in a database.
    pub pins: Vec<Pin>,
}

/// A transaction of a user that pins a grant: the next holder is granted after its end.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// for entry in locks.inspect("orders/42").await?.holders() {
///     for pin in entry.pins.iter().filter(|pin| pin.overdue.is_some()) {
///         println!("{:?} delays the next holder", pin.by);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pin {
    /// Whose transaction it is.
    pub by: PinnedBy,
    /// For how long the hold itself is over; `None` while it is held.
    pub overdue: Option<Duration>,
    /// What the role of this client would need to end the session; `None` if it may end it.
    pub missing_right: Option<String>,
}

/// What can end the transaction that pins a grant.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// use leasehold::PinnedBy;
/// let lock_state = locks.inspect("orders/42").await?;
/// for pin in lock_state.holders().flat_map(|entry| &entry.pins) {
///     match &pin.by {
///         PinnedBy::Session(process) => println!("SELECT pg_terminate_backend({process})"),
///         PinnedBy::Prepared(id) => println!("ROLLBACK PREPARED '{id}'"),
///         other => println!("{other:?}"),
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PinnedBy {
    /// The end of a session, by the id of its process on the server.
    Session(u32),
    /// The commit or rollback of a prepared transaction with this id.
    Prepared(String),
}

/// Creates a pin of a hold that is not over.
#[must_use]
pub fn pin(by: PinnedBy) -> Pin {
    Pin {
        by,
        overdue: None,
        missing_right: None,
    }
}

/// Creates an entry of a queue. A store sets the other fields that it knows.
#[must_use]
pub fn entry(id: ClaimId, share: Share, standing: Standing, info: ClaimantInfo) -> Entry {
    Entry {
        id,
        share,
        standing,
        reserved: 0,
        info,
        lease_left: None,
        connected: None,
        process: None,
        pins: Vec::new(),
    }
}

impl Entry {
    /// Returns the token of a claim that holds.
    ///
    /// If the grant [reserved](Self::reserved) tokens for a [cohort](crate::Lock::cohort), it is
    /// the largest of them. All guards but the last that the grant allows have smaller tokens, so
    /// don't reject a token because it is smaller than this one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let guard = locks.mutex("nightly").acquire().await?;
    /// let lock_state = locks.inspect("nightly").await?;
    /// assert_eq!(lock_state.entries[0].token(), Some(guard.token()));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        self.standing.token()
    }

    /// Returns the smallest token of the grant of a claim that holds.
    ///
    /// It differs from [`token`](Self::token) only if the grant reserved tokens.
    #[must_use]
    pub fn first_token(&self) -> Option<Token> {
        let last = self.token()?.get();
        let first = last.saturating_sub(u64::from(self.reserved));
        Token::new(first.max(1))
    }

    /// Returns whether a token belongs to the grant of this claim.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let guard = locks.mutex("a").cohort(8).acquire().await?;
    /// let lock_state = locks.inspect("a").await?;
    /// assert!(lock_state.holders().next().unwrap().has_token(guard.token()));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn has_token(&self, token: Token) -> bool {
        let is_after_first = self.first_token().is_some_and(|first| first <= token);
        is_after_first && self.token().is_some_and(|last| token <= last)
    }
}

/// The process of a hold on the file store, if this machine or container does not list it under the
/// id in [`Entry::info`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// for entry in locks.inspect("nightly").await?.holders() {
///     for process in entry.process.iter().flat_map(|process| process.processes()) {
///         println!("still held by {process}");
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimProcess {
    /// It runs in another PID namespace, and has this id here.
    OtherNamespace(ExternalHolder),
    /// It has ended, and these processes that it started still hold the lock.
    #[non_exhaustive]
    Ended {
        /// The processes that have inherited its descriptors, as far as this user may see them.
        held_by: Vec<ExternalHolder>,
    },
    /// It is in another PID namespace or has ended. The processes that hold the lock are not
    /// visible, because they belong to another user or to another PID namespace.
    Unseen,
}

impl ClaimProcess {
    /// Returns the processes that hold the lock, as far as they are visible.
    #[must_use]
    pub fn processes(&self) -> &[ExternalHolder] {
        match self {
            Self::OtherNamespace(process) => std::slice::from_ref(process),
            Self::Ended { held_by } => held_by,
            Self::Unseen => &[],
        }
    }
}

/// The state of a lock on one of several servers.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// for server in locks.inspect("orders/42").await?.servers {
///     println!("{}: {}", server.server, server.error.unwrap_or_default());
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStatus {
    /// The server, as the URL names it without its password.
    pub server: String,
    /// The claim that has the server's vote, and its token.
    pub holder: Option<(ClaimId, Token)>,
    /// The highest token that the server has.
    pub last_token: Option<Token>,
    /// For how long the vote still counts.
    pub remaining: Duration,
    /// Why the server sent no reply, or why its vote does not count.
    pub error: Option<String>,
}

/// Creates the status of a server that has given no vote.
#[must_use]
pub fn server_status(server: String) -> ServerStatus {
    ServerStatus {
        server,
        holder: None,
        last_token: None,
        remaining: Duration::ZERO,
        error: None,
    }
}

/// The vote of one of several servers for a hold.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use leasehold::stores::RedlockGuardExt;
/// let guard = leasehold::open("redlock://a,b,c").await?.mutex("orders/42").acquire().await?;
/// let votes = guard.votes().iter().filter(|vote| !vote.remaining.is_zero()).count();
/// println!("{votes} of {} servers count", guard.votes().len());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerVote {
    /// The server, as the URL names it without its password.
    pub server: String,
    /// For how long the vote counts, from the server's last reply.
    ///
    /// It is zero if the server has not voted, or its vote has expired.
    pub remaining: Duration,
}

/// Creates the vote of a server, which counts for `remaining`.
#[must_use]
pub fn server_vote(server: String, remaining: Duration) -> ServerVote {
    ServerVote { server, remaining }
}

/// A process that holds a lock without an entry in the queue.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// for process in locks.inspect("backup").await?.external_holders {
///     println!("{} [{}] holds it by flock(1)", process.program, process.pid);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExternalHolder {
    /// The process id, as this machine or container numbers it.
    pub pid: u32,
    /// The program's name in the kernel; empty if the kernel does not show it.
    pub program: String,
}

/// Writes `program[pid]`, with escaped control characters.
impl fmt::Display for ExternalHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.program.is_empty() {
            // The kernel still names the process that locked the file.
            let pid = self.pid;
            return write!(
                f,
                "process {pid} or its descendants, which are not visible here"
            );
        }
        write!(f, "{}[{}]", Escaped(&self.program), self.pid)
    }
}
