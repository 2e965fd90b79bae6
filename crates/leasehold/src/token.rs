//! The number of a grant.

use std::fmt;
use std::num::NonZeroU64;

use crate::{ClaimId, Error, Result};

/// The number of one grant: of two grants of one name, the later has the larger token.
///
/// Hand it to the resource with every write and let the resource refuse a smaller one than it has seen (a *fencing
/// token*): then a holder that slept past its lease cannot do harm.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// let first = locks.mutex("a").acquire().await?.token();
/// let second = locks.mutex("a").acquire().await?.token();
/// assert!(second > first);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(NonZeroU64);

impl Token {
    /// The token of this number; zero is none.
    #[must_use]
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl std::str::FromStr for Token {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        text.parse()
            .map(Self)
            .map_err(|_| Error::invalid(format!("{text:?} is not a token: a whole number above 0")))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.0)
    }
}

/// The token of a grant and the id of the claim that was granted: what a resource compares.
///
/// A store that loses its data, or is split in two, can grant one token to two claims. The claim id tells them apart.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use leasehold::{ClaimId, FencingToken};
///
/// let guard = leasehold::open("memory:").await?.mutex("a").acquire().await?;
/// let ours = guard.fencing_token();
/// let same_token = FencingToken::new(ours.token(), ClaimId::draw());
/// assert!(ours.is_accepted_after(ours));
/// assert!(!same_token.is_accepted_after(ours));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FencingToken {
    token: Token,
    claim: ClaimId,
}

impl FencingToken {
    /// The fencing token of this grant of this claim.
    #[must_use]
    pub fn new(token: Token, claim: ClaimId) -> Self {
        Self { token, claim }
    }

    /// The number of the grant.
    #[must_use]
    pub fn token(self) -> Token {
        self.token
    }

    /// The claim that was granted.
    #[must_use]
    pub fn claim(self) -> ClaimId {
        self.claim
    }

    /// Whether a resource accepts this one after it has seen `last`: the token is larger, or token and claim are the
    /// same.
    #[must_use]
    pub fn is_accepted_after(self, last: Self) -> bool {
        self.token > last.token || self == last
    }
}
