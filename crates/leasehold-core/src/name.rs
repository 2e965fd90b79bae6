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
    /// ```
    /// use leasehold::Name;
    /// assert_eq!(Name::parse("orders/42")?.as_str(), "orders/42");
    /// assert!(Name::parse("").unwrap_err().is_invalid());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if it is empty or longer than [`LEN_MAX`](Self::LEN_MAX).
    pub fn parse(text: &str) -> Result<Self> {
        Self::check(text)?;
        Ok(Self(text.into()))
    }

    /// As [`parse`](Self::parse), without a copy of the text.
    pub(crate) fn shared(text: &Arc<str>) -> Result<Self> {
        Self::check(text)?;
        Ok(Self(Arc::clone(text)))
    }

    fn check(text: &str) -> Result<()> {
        match text.len() {
            0 => Err(Error::invalid("the name of a lock cannot be empty")),
            1..=Self::LEN_MAX => Ok(()),
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

/// Displays a text of another program, with the characters escaped that change how a terminal shows
/// the others: control characters, and the invisible ones that set the direction or show nothing.
#[derive(Debug)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if c.is_control() || is_invisible(c) {
                write!(f, "{}", c.escape_default())?;
            } else {
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}

/// Whether it is a format character or a separator of lines, by their ranges in Unicode 16.
///
/// The joiners U+200C and U+200D are spelling in some languages, and parts of emoji.
pub(crate) fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
