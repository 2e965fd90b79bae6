//! The name of a lock.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::{Error, Result};

/// What a lock is called: any UTF-8 text of 1 to 512 bytes, the same for everybody who wants the same lock.
///
/// ```
/// use leasehold::Name;
/// let name: Name = "orders/42".parse()?;
/// assert_eq!(name.as_str(), "orders/42");
/// assert!("".parse::<Name>().is_err());
/// # Ok::<(), leasehold::Error>(())
/// ```
///
/// Slashes, dots, spaces and control characters are all allowed: each store encodes them so that no name can reach
/// outside its folder or key space, and no two names meet. Names are compared byte for byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The longest name, in bytes.
    pub const LEN_MAX: usize = 512;

    /// Checks a name once, so that no layer below has to.
    pub fn parse(text: &str) -> Result<Self> {
        match text.len() {
            0 => Err(Error::invalid("a lock needs a name, and this one is empty")),
            1..=Self::LEN_MAX => Ok(Self(text.into())),
            long => Err(Error::invalid(format!(
                "a lock's name has at most {} bytes, this one {long}",
                Self::LEN_MAX
            ))),
        }
    }

    /// The name as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

/// Safe for a terminal: control characters are escaped.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if c.is_control() {
                write!(f, "{}", c.escape_default())?;
            } else {
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
