//! The number of a grant.

use std::fmt;
use std::num::NonZeroU64;

use crate::{ClaimId, Error, Result};

/// The number of one grant: of two grants of one name, the later has the larger token.
///
/// It is a *fencing token*: the client sends it to the resource with every write, and the resource
/// rejects a token that is smaller than one it has received. A holder that sleeps past its lease
/// then cannot write.
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
    /// Creates the token of this number; `None` for zero.
    ///
    /// ```
    /// use leasehold::Token;
    /// assert_eq!(Token::new(7).map(Token::get), Some(7));
    /// assert_eq!(Token::new(0), None);
    /// ```
    #[must_use]
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    /// Returns the number.
    ///
    /// ```
    /// let token = leasehold::Token::new(7).expect("not zero");
    /// assert_eq!(token.get(), u64::from(token));
    /// ```
    #[doc(alias = "u64")]
    #[must_use]
    pub fn get(self) -> u64 {
        self.0.get()
    }

    /// Returns the number for a column of a database, which has signed numbers.
    ///
    /// No store grants a token above [`i64::MAX`]. Of a token that a program made itself, it is
    /// [`i64::MAX`] then.
    ///
    /// ```
    /// let token = leasehold::Token::new(7).expect("not zero");
    /// let column: i64 = token.to_i64();
    /// # assert_eq!(column, 7);
    /// ```
    #[doc(alias = "i64")]
    #[must_use]
    pub fn to_i64(self) -> i64 {
        i64::try_from(self.get()).unwrap_or(i64::MAX)
    }
}

/// See [`Token::get`].
impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        token.get()
    }
}

/// See [`Token::new`].
impl TryFrom<u64> for Token {
    type Error = Error;

    fn try_from(number: u64) -> Result<Self> {
        Self::new(number).ok_or_else(no_token)
    }
}

fn no_token() -> Error {
    Error::invalid("a token is a whole number above 0")
}

impl std::str::FromStr for Token {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        text.parse().map(Self).map_err(|_| no_token())
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

/// The token of a grant and the id of its claim, which a resource compares.
///
/// A store that loses its data, or is split in two, can grant one token to two claims. Their claim
/// ids differ. Its text, `TOKEN:CLAIM`, carries both to a resource elsewhere, as in a header of HTTP.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use leasehold::{ClaimId, FencingToken};
///
/// let guard = leasehold::open("memory:").await?.mutex("a").acquire().await?;
/// let ours = guard.fencing_token()?;
/// let other: ClaimId = "6f1c2a4e9b0d4c5f8a7e3d2b1c0f9e8d".parse()?;
/// assert!(ours.is_accepted_after(ours));
/// assert_eq!(ours.to_string().parse::<FencingToken>()?, ours);
/// assert!(!FencingToken::new(ours.token(), other).is_accepted_after(ours));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FencingToken {
    token: Token,
    claim: ClaimId,
}

impl FencingToken {
    /// Creates the fencing token of a grant.
    ///
    /// ```
    /// use leasehold::{FencingToken, Token};
    /// let token = Token::try_from(7)?;
    /// let claim = "6f1c2a4e9b0d4c5f8a7e3d2b1c0f9e8d".parse()?;
    /// assert_eq!(FencingToken::new(token, claim).token(), token);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn new(token: Token, claim: ClaimId) -> Self {
        Self { token, claim }
    }

    /// Returns the token of the grant.
    #[must_use]
    pub fn token(self) -> Token {
        self.token
    }

    /// Returns the claim that was granted.
    #[must_use]
    pub fn claim(self) -> ClaimId {
        self.claim
    }

    /// Returns whether a resource accepts this fencing token after `last`.
    ///
    /// The token must be larger, or token and claim must be the same.
    ///
    /// ```
    /// use leasehold::FencingToken;
    /// let last: FencingToken = "7:6f1c2a4e9b0d4c5f8a7e3d2b1c0f9e8d".parse()?;
    /// let late: FencingToken = "6:0a1b2c3d4e5f60718293a4b5c6d7e8f9".parse()?;
    /// assert!(last.is_accepted_after(last) && !late.is_accepted_after(last));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn is_accepted_after(self, last: Self) -> bool {
        self.token > last.token || self == last
    }
}

/// Writes `TOKEN:CLAIM`.
impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.token, self.claim)
    }
}

/// Parses the displayed form.
impl std::str::FromStr for FencingToken {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some((token, claim)) = text.split_once(':') else {
            return Err(Error::invalid("a fencing token is TOKEN:CLAIM"));
        };
        Ok(Self::new(token.parse()?, claim.parse()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_converts_to_the_numbers_of_databases_and_back() -> Result<()> {
        let largest = Token::try_from(i64::MAX.unsigned_abs())?;
        assert_eq!(largest.to_i64(), i64::MAX);
        assert_eq!(u64::from(largest), i64::MAX.unsigned_abs());

        assert_eq!(Token::try_from(u64::MAX)?.to_i64(), i64::MAX);
        assert!(Token::try_from(0).is_err_and(|error| error.is_invalid()));
        Ok(())
    }

    #[test]
    fn fencing_token_round_trips_as_text() -> Result<()> {
        let text = "7:6f1c2a4e9b0d4c5f8a7e3d2b1c0f9e8d";
        let parsed: FencingToken = text.parse()?;
        assert_eq!(
            (parsed.token().get(), parsed.to_string()),
            (7, text.to_owned())
        );

        for malformed in [
            "",
            "7",
            ":",
            "7:",
            "0:6f1c2a4e9b0d4c5f8a7e3d2b1c0f9e8d",
            "7:6f1c",
        ] {
            let error = malformed.parse::<FencingToken>().unwrap_err();
            assert!(error.is_invalid(), "{malformed:?}");
        }
        Ok(())
    }
}
