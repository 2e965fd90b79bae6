//! The number of a grant.

use std::fmt;
use std::num::NonZeroU64;

use crate::{Error, Result};

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
        text.parse().map(Self).map_err(|_| Error::invalid(format!("{text:?} is not a token: a whole number above 0")))
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
