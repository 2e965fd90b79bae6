//! The name of a lock.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::NAME_LEN_MAX;
use crate::{Error, Result};

/// The name of a lock: any UTF-8 text of 1 to 512 bytes. One name is one lock for all clients.
///
/// ```
/// use leasehold::Name;
/// let name: Name = "orders/42".parse()?;
/// assert_eq!(name.as_str(), "orders/42");
/// assert!("".parse::<Name>().is_err());
/// # Ok::<(), leasehold::Error>(())
/// ```
///
/// Slashes, dots, spaces and control characters are allowed. Each store encodes them, so that no
/// name leaves its folder or key space, and no two names collide. Names are compared byte for byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The longest name, in bytes.
    pub const LEN_MAX: usize = NAME_LEN_MAX;

    /// Parses a name.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if it is empty or longer than [`LEN_MAX`](Self::LEN_MAX).
    pub fn parse(text: &str) -> Result<Self> {
        match text.len() {
            0 => Err(Error::invalid("the name of a lock cannot be empty")),
            1..=Self::LEN_MAX => Ok(Self(text.into())),
            long => Err(Error::invalid(format!(
                "the name of a lock has at most {} bytes, and this one has {long}",
                Self::LEN_MAX
            ))),
        }
    }

    /// Returns the name as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

/// Writes the name with escaped control characters, which is safe for a terminal.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Escaped(&self.0).fmt(f)
    }
}

/// Displays a text with its control characters escaped.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl fmt::Display for Escaped<'_> {
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
