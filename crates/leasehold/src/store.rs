//! What a store must do. No logic lives here.

use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::time::Duration;

use async_trait::async_trait;

use crate::{Claim, Guarantees, LockState, Name, Result, ServerVote, Token};

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

    /// Descriptors that keep a held claim alive for as long as any process has them open, also after the end of this
    /// one; none if the store knows nothing of the kind. Leaving ends the claim all the same.
    fn inheritable_fds(&self, claim: &Claim) -> Result<Vec<OwnedFd>>;

    /// Where several servers keep the lock together, what each has granted to a held claim, as this client has heard it;
    /// empty where one store decides.
    fn votes(&self, _claim: &Claim) -> Vec<ServerVote> {
        Vec::new()
    }

    /// The line of a name, for people.
    async fn inspect(&self, name: &Name) -> Result<LockState>;

    /// The names that begin with `prefix` and have somebody in line, sorted; at most `count_max` of them.
    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>>;
}

/// Where a claim stands.
///
/// ```text
/// enter ──► Queued ──grant──► Held ──leave, expiry──► Gone
///   │          └──────leave, expiry, crash────────────▲
///   └── granted at once ──► Held         refused ─────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
pub struct Entered {
    /// Where the claim stands now.
    pub standing: Standing,
    /// How long the store keeps the claim unheard of, counted from before the question was sent;
    /// [`Duration::MAX`] if only a crash can end it.
    pub lease: Duration,
}

/// Whether a claim waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnContention {
    /// Wait in line.
    Queue,
    /// Be granted now, or leave no entry behind.
    Fail,
}
