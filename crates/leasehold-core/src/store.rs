//! The trait that a store implements, and the types in its methods. This module has no logic.

mod intercept;

use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::Weak;
use std::time::Duration;

use async_trait::async_trait;

use crate::record::{Completion, Record};
use crate::{Error, Guarantees, LockState, Name, Refused, Result, ServerVote, Token};

pub use crate::admission::admitted;
pub use crate::claim::{
    Claim, ClaimId, Share, check_same_kind, check_shrinks, claim_id_from_bytes, draw_claim_id,
    is_part_of, share_from_parts, units,
};
pub use crate::claimant_info::{
    HOST_MAX, LABEL_MAX, PROGRAM_MAX, claimant_here, foreign_claimant, parse_words, write_words,
    write_words_encoded,
};
pub use crate::lock_state::comparable;
pub use crate::name::Escaped;
pub use crate::record::time as record_time;
pub use intercept::{Intercept, Intercepted, Request};

/// A service that keeps queues of claims.
///
/// The store decides which claim is next. It mints the token in the atomic step that grants the
/// lock, and notifies the client of the claim. Deadlines, retries and renewals belong to the
/// engine.
///
/// Every method may be called again with the same claim, after an error or after a reply. The
/// second call then finds the effect of the first.
///
/// The trait has no default methods: a wrapper that forgets one does not compile.
///
/// [`Memory`](crate::stores::Memory) is the smallest store. The crate `leasehold-conformance` has
/// the suites that a store must pass. docs/extending.md explains how to add one.
///
/// # Requests without a reply
/// A request that receives no reply ends with [`Error::unavailable`](crate::Error::unavailable)
/// after a time that the store bounds. The engine sets a limit of its own for `renew`, `leave`,
/// `inspect` and `list`, but none for `enter`, `queued` and `lost`.
#[async_trait]
pub trait Store: Debug + Send + Sync + 'static {
    /// Returns what this store guarantees.
    fn guarantees(&self) -> Guarantees;

    /// Enters a claim at the end of the queue, or finds it there, and returns its standing.
    ///
    /// With [`OnContention::Fail`] a claim that cannot be granted at once leaves no entry, and the
    /// standing is [`Standing::Gone`].
    ///
    /// # Repeated calls
    /// The store finds the claim by its id. The claim keeps its position, and its lease starts
    /// again. A claim with a smaller share than before gives back the difference. A larger share is
    /// rejected as invalid: [`check_shrinks`] returns the error.
    ///
    /// # Errors
    /// [`is_mismatch`](crate::Error::is_mismatch) if the name is in use with another capacity:
    /// [`check_same_kind`] returns the error.
    ///
    /// # Cancel safety
    /// The engine never drops this future; it runs to its end.
    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered>;

    /// Waits while a claim is in the queue behind `ahead` others, and returns its next standing.
    ///
    /// It returns at the grant, at another number of claims ahead, and when the claim is gone.
    ///
    /// Where the service sends no notification when a lease ends, the store polls at the next end
    /// of a lease in the queue. The other clients may all have crashed.
    ///
    /// A connection that broke may have lost a notification. The store reads the standing again
    /// when the connection is back.
    ///
    /// # Errors
    /// The engine calls this again after an error, for as long as an outage may last.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing. The next call finds a grant that was under way.
    async fn queued(&self, claim: &Claim, ahead: u32) -> Result<Standing>;

    /// Waits until a claim no longer holds with `token`.
    ///
    /// A holder waits here for the loss of its lock, because a renewal would find that loss too
    /// late. As in [`queued`](Self::queued), the store reads the standing again when a connection
    /// is back.
    ///
    /// # Errors
    /// The engine calls this again after an error. An error does not end a hold.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    async fn lost(&self, claim: &Claim, token: Token) -> Result<()>;

    /// Renews claims that wait or are held.
    ///
    /// Returns one lease per claim, in order, which counts from before the request. It is `None`
    /// for a claim that the store no longer has.
    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>>;

    /// Removes a claim that waits or is held, and hands over to the next; returns whether it was
    /// there.
    ///
    /// # Repeated calls
    /// The second call returns `false`.
    async fn leave(&self, claim: &Claim) -> Result<bool>;

    /// Returns the state of a lock, in readable form.
    async fn inspect(&self, name: &Name) -> Result<LockState>;

    /// Returns the names with claims that begin with `prefix`, sorted, at most `count_max`.
    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>>;

    /// Returns what only some kinds of store have; [`Extensions::default`] if this store has none.
    ///
    /// A wrapper returns the extensions of the store that it wraps.
    fn extensions(&self) -> Extensions<'_>;
}

/// Creates what a store replies.
///
/// Users only read these types, so they have no constructors of their own.
pub mod replies {
    pub use crate::ended_hold::{end_reason, ended_hold};
    pub use crate::guarantees::{guarantees, released_within};
    pub use crate::lock_state::{entry, lock_state, pin, server_status, server_vote};
    pub use crate::refused::refused;
}

/// What only some kinds of store have.
///
/// ```
/// use leasehold::store::{Extensions, Store};
/// let store = leasehold::stores::Memory::new();
/// assert!(store.extensions().votes.is_none());
/// ```
///
/// A store that has some of them names these only:
/// `Extensions { observe: Some(self), ..Extensions::default() }`.
#[derive(Clone, Copy, Default)]
pub struct Extensions<'a> {
    /// Descriptors that keep a claim alive without this process.
    pub inheritable_fds: Option<&'a dyn InheritableFds>,
    /// Several servers that grant a claim together.
    pub votes: Option<&'a dyn Votes>,
    /// Files or records that free locks leave behind.
    pub housekeeping: Option<&'a dyn Housekeeping>,
    /// Changes of a lock that the store pushes to observers.
    pub observe: Option<&'a dyn Observe>,
    /// Leases that the store chooses.
    pub own_leases: Option<&'a dyn OwnLeases>,
    /// Grants that a transaction in the store's database can pin.
    pub pinning: Option<&'a dyn Pinning>,
    /// Records of completed jobs.
    pub records: Option<&'a dyn Records>,
    /// A store inside this process.
    #[doc(hidden)]
    pub in_process: Option<&'a dyn InProcess>,
}

/// A store in a database, in which a transaction of the user can pin a grant: the next holder is
/// granted after its end.
pub trait Pinning: Send + Sync {
    /// Returns the statement that checks and pins a grant. It takes what
    /// [`CheckBinds`](crate::CheckBinds) has, in that order.
    fn check_statement(&self) -> String;

    /// Returns a name as the statement takes it.
    fn bound_name(&self, name: &Name) -> String;
}

impl<'a> Extensions<'a> {
    /// Returns the records.
    ///
    /// # Errors
    /// [`is_unsupported`](Error::is_unsupported) if the store has none, with the reason.
    pub(crate) fn require_records(&self) -> Result<&'a dyn Records> {
        self.records.ok_or_else(|| {
            let reason = if self.votes.is_some() {
                "masters that forget one after another would lose a record, which must last for \
                 weeks"
            } else {
                "this store or format has no records of completed jobs"
            };
            Error::unsupported(reason).help(
                "use redis:, redis+sentinel:, redis+cluster: or file: without a dialect, or \
                 postgres:, zookeeper:, system: or memory:",
            )
        })
    }
}

/// A store whose claims a child process can keep alive.
pub trait InheritableFds: Send + Sync {
    /// Returns descriptors that keep a held claim alive while any process has them open.
    ///
    /// The claim then outlives this process. [`Store::leave`] ends it all the same.
    fn inheritable_fds(&self, claim: &Claim) -> Result<Vec<OwnedFd>>;
}

/// A store in which free locks leave files or records behind.
#[async_trait]
pub trait Housekeeping: Send + Sync {
    /// Removes what the free locks of all processes have left, of crashed ones too.
    ///
    /// # Cancel safety
    /// A dropped call may have removed a part. It can be repeated.
    async fn remove_unused(&self) -> Result<Cleanup>;
}

/// What [`Housekeeping::remove_unused`] did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Cleanup {
    /// The number of names whose files or records were removed.
    pub removed: u64,
    /// The number of names that are in use.
    pub in_use: u64,
    /// Why other names were left as they are.
    pub skipped: Vec<Error>,
}

/// A store that pushes the changes of a lock to clients that do not wait for it.
#[async_trait]
pub trait Observe: Send + Sync {
    /// Subscribes to the changes of a lock.
    ///
    /// # Errors
    /// If the error is not [`is_unavailable`](crate::Error::is_unavailable), the observer polls the
    /// store instead.
    ///
    /// # Cancel safety
    /// Dropping the future ends the subscription.
    async fn subscribe(&self, name: &Name) -> Result<Box<dyn Subscription>>;
}

/// The subscription to one lock. It ends when it is dropped.
#[async_trait]
pub trait Subscription: Debug + Send + Sync {
    /// Waits until the lock may have changed since the subscription, or since the last call.
    ///
    /// It may return without a change. A change that has no notification, such as the end of a
    /// lease, may be missing: the observer also inspects the lock from time to time.
    ///
    /// # Errors
    /// A change may have been missed. The observer inspects the lock and calls this again.
    ///
    /// # Cancel safety
    /// If the future is dropped, no change is lost: the next call returns.
    async fn changed(&mut self) -> Result<()>;
}

/// A store that keeps a claim for another time than the lease of the claim.
pub trait OwnLeases: Send + Sync {
    /// Returns for how long the store keeps a claim without a renewal.
    ///
    /// It sends no request.
    fn lease_of(&self, claim: &Claim) -> Duration;
}

/// A store that consists of several servers, each of which votes for a claim.
pub trait Votes: Send + Sync {
    /// Returns the vote of each server for a held claim, as far as this client knows it.
    ///
    /// It sends no request.
    fn votes(&self, claim: &Claim) -> Vec<ServerVote>;
}

/// A store that keeps beside each lock which jobs were completed under it.
///
/// A record may be lost with the data of the store: the job then runs again. It must never show a
/// job that was not completed.
#[async_trait]
pub trait Records: Send + Sync {
    /// Returns how long a record is kept after its last use. It sends no request to an open store.
    async fn kept(&self) -> Result<Duration>;

    /// Reads the record of a lock; an empty one if it has none.
    ///
    /// # Cancel safety
    /// It changes at most the time of the last use; dropping it has no other effect.
    async fn record(&self, name: &Name, reader: RecordReader) -> Result<Record>;

    /// Adds a completion to the record and removes the claim, in one step, if the claim holds.
    /// Returns `false` if it does not; the record then stays as it is.
    ///
    /// The id of the claim decides, and the token of no completion is compared: after a loss of
    /// data, an old one may be the largest forever.
    ///
    /// # Repeated calls
    /// If the claim has added its completion before, the call returns `true` and changes nothing.
    async fn complete(&self, claim: &Claim, completion: &Completion) -> Result<bool>;

    /// Returns the names with records that begin with `prefix`, sorted, at most `count_max`.
    async fn list_records(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>>;
}

/// Who reads a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordReader {
    /// A holder of the lock, or a client that asks whether its job is done. This is a use, after
    /// which the record is kept for its full time.
    Holder,
    /// An observer.
    Observer,
}

/// A store inside this process, which needs no message to end the hold of a client.
#[doc(hidden)]
pub trait InProcess: Send + Sync {
    /// Returns what tells the store from others: its clones have the same number.
    fn id(&self) -> usize;

    /// Adds a client, whose holds end before the store gives them to others.
    fn add_client(&self, client: Weak<dyn Revocable>);
}

/// A client of a store inside this process.
#[doc(hidden)]
pub trait Revocable: Debug + Send + Sync {
    /// Ends the client's hold of a claim, if it has it.
    fn revoke(&self, id: ClaimId);
}

/// Whether a claim waits, holds, or is gone.
///
/// ```text
/// enter ──► Queued ──grant──► Held ──leave, expiry──► Gone
///   │          └──────leave, expiry, crash────────────▲
///   └── granted at once ──► Held         refused ─────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Standing {
    /// In the queue behind `ahead` others.
    Queued {
        /// The number of claims ahead, including holders.
        ahead: u32,
    },
    /// Granted.
    Held {
        /// The token of the grant.
        token: Token,
    },
    /// Without an entry: never entered, refused, left, expired or evicted.
    Gone,
}

impl Standing {
    /// Returns the token of a held claim.
    #[must_use]
    pub fn token(self) -> Option<Token> {
        match self {
            Self::Held { token } => Some(token),
            Self::Queued { .. } | Self::Gone => None,
        }
    }
}

/// The reply to [`Store::enter`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entered {
    /// The standing of the claim.
    pub standing: Standing,
    /// How long the store keeps the claim without a renewal, counted from before the request.
    ///
    /// It is [`Duration::MAX`] if only a crash can end the claim, as with
    /// [`CrashRelease::Immediate`](crate::CrashRelease::Immediate). A store that never ends a
    /// claim returns the claim's own lease: a shorter lease is always safe.
    pub lease: Duration,
    /// Who holds the lock, if the claim was refused and the reply of the service says so. Otherwise
    /// the engine inspects the lock.
    pub refused: Option<Box<Refused>>,
}

impl Entered {
    /// Creates the reply of a store that keeps the claim for `lease`.
    #[must_use]
    pub fn new(standing: Standing, lease: Duration) -> Self {
        Self {
            standing,
            lease,
            refused: None,
        }
    }

    /// Adds who has refused a claim that is [gone](Standing::Gone).
    #[must_use]
    pub fn with_refused(self, refused: Option<Refused>) -> Self {
        Self {
            refused: refused.map(Box::new),
            ..self
        }
    }
}

/// What a claim does if it cannot be granted at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnContention {
    /// It waits in the queue.
    Queue,
    /// It fails, and no entry remains.
    Fail,
}
