//! The trait that a store implements, and the types in its methods. This module has no logic.

use std::fmt::{self, Debug, Formatter};
use std::os::fd::OwnedFd;
use std::time::Duration;

use async_trait::async_trait;

use crate::{Guarantees, LockState, Name, Result, ServerVote, Token};

pub use crate::admission::admitted;
pub use crate::claim::{Claim, ClaimId, Share};

/// A service that keeps lines of claims.
///
/// A store knows no deadline, no retry and no renewal: the engine owns those. It decides who is next, mints the token
/// in the atomic step that grants, and wakes the claim it granted. All its methods may be asked again with the same
/// claim, after any error or none, and then find what the first asking did.
///
/// There are no default methods: a wrapper that forgets one must not compile.
///
/// [`conformance`](crate::conformance) has the suites that a store must pass, and CONTRIBUTING.md the way to add one.
#[async_trait]
pub trait Store: Debug + Send + Sync + 'static {
    /// What this store guarantees.
    fn guarantees(&self) -> Guarantees;

    /// Puts a claim at the end of the line, or finds it there, and says where it stands.
    ///
    /// *Asked twice*: the claim is found by its id, keeps its place and has its lease counted anew. With a smaller
    /// share than it holds it gives back the difference; a larger one is refused as invalid.
    ///
    /// With [`OnContention::Fail`] a claim that cannot be granted at once leaves no entry, and is answered `GoneTimes`.
    ///
    /// *Cancel safety*: the engine never drops this future; it runs to its end.
    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered>;

    /// Waits until a claim stands otherwise than `seen`, and says how.
    ///
    /// *Cancel safety*: dropping it changes nothing; a grant that was under way is found by asking again.
    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing>;

    /// Keeps claims alive, waiting or held; answers for each, in order, how long from before the question it is safe,
    /// `None` for one the store no longer has.
    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>>;

    /// Takes a claim out of the line, held or waiting, and hands over to the next; says whether it was there.
    ///
    /// *Asked twice*: the second answer is `false`.
    async fn leave(&self, claim: &Claim) -> Result<bool>;

    /// The line of a name, for people.
    async fn inspect(&self, name: &Name) -> Result<LockState>;

    /// The names that begin with `prefix` and have somebody in line, sorted; at most `count_max` of them.
    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>>;

    /// Returns what only some kinds of store have; [`Extensions::default`] if this store has none.
    ///
    /// A wrapper returns the extensions of the store that it wraps.
    fn extensions(&self) -> Extensions<'_>;
}

/// What only some kinds of store have.
///
/// ```
/// use leasehold::store::{Extensions, Store};
/// let store = leasehold::stores::Memory::new();
/// assert!(store.extensions().votes.is_none());
/// ```
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub struct Extensions<'a> {
    /// Descriptors that keep a claim alive without this process.
    pub inheritable_fds: Option<&'a dyn InheritableFds>,
    /// Several servers that grant a claim together.
    pub votes: Option<&'a dyn Votes>,
}

impl<'a> Extensions<'a> {
    /// Adds descriptors that keep a claim alive.
    #[must_use]
    pub fn with_inheritable_fds(self, store: &'a dyn InheritableFds) -> Self {
        Self {
            inheritable_fds: Some(store),
            ..self
        }
    }

    /// Adds the votes of several servers.
    #[must_use]
    pub fn with_votes(self, store: &'a dyn Votes) -> Self {
        Self {
            votes: Some(store),
            ..self
        }
    }
}

impl Debug for Extensions<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extensions")
            .field("inheritable_fds", &self.inheritable_fds.is_some())
            .field("votes", &self.votes.is_some())
            .finish()
    }
}

/// A store whose claims a child process can keep alive.
pub trait InheritableFds: Send + Sync {
    /// Returns descriptors that keep a held claim alive while any process has them open.
    ///
    /// The claim then outlives this process. [`Store::leave`] ends it all the same.
    fn inheritable_fds(&self, claim: &Claim) -> Result<Vec<OwnedFd>>;
}

/// A store that consists of several servers, each of which votes for a claim.
pub trait Votes: Send + Sync {
    /// Returns the vote of each server for a held claim, as far as this client knows it.
    ///
    /// It sends no request.
    fn votes(&self, claim: &Claim) -> Vec<ServerVote>;
}

/// Where a claim stands.
///
/// ```text
/// enter ──► Queued ──grant──► Held ──leave, expiry──► Gone
///   │          └──────leave, expiry, crash────────────▲
///   └── granted at once ──► Held         refused ─────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Standing {
    /// In line behind `ahead` others.
    Queued {
        /// How many claims are ahead, holders included.
        ahead: u32,
    },
    /// Granted.
    Held {
        /// The number of the grant.
        token: Token,
    },
    /// Not there: never entered, refused, left, expired or evicted.
    Gone,
}

impl Standing {
    /// The token, if held.
    #[must_use]
    pub fn token(self) -> Option<Token> {
        match self {
            Self::Held { token } => Some(token),
            Self::Queued { .. } | Self::Gone => None,
        }
    }
}

/// The answer to [`Store::enter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entered {
    /// Where the claim stands now.
    pub standing: Standing,
    /// How long the store keeps the claim unheard of, counted from before the question was sent;
    /// [`Duration::MAX`] if only a crash can end it.
    pub lease: Duration,
}

impl Entered {
    /// Creates the reply of a store that keeps the claim for `lease`.
    #[must_use]
    pub fn new(standing: Standing, lease: Duration) -> Self {
        Self { standing, lease }
    }
}

/// Whether a claim waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnContention {
    /// Wait in line.
    Queue,
    /// Be granted now, or leave no entry behind.
    Fail,
}
