//! Replies.

/// A reply of the server.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The value does not exist.
    Nil,
    /// An integer.
    Int(i64),
    /// A status word, such as `OK`.
    Status(String),
    /// A value.
    Bytes(Vec<u8>),
    /// The request failed, with the reason.
    Error(String),
    /// A list of replies.
    List(Vec<Reply>),
}

/// The result of a command; the error is the text of an error reply.
pub(crate) type Outcome = Result<Reply, String>;

impl Reply {
    /// Returns the value of an integer.
    ///
    /// # Panics
    /// If the reply is something else.
    #[must_use]
    pub fn int(&self) -> i64 {
        match self {
            Self::Int(value) => *value,
            other => panic!("not an integer: {other:?}"),
        }
    }

    pub(crate) fn ok() -> Self {
        Self::Status("OK".to_owned())
    }

    pub(crate) fn count(count: usize) -> Self {
        Self::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }

    pub(crate) fn text(text: impl AsRef<[u8]>) -> Self {
        Self::Bytes(text.as_ref().to_vec())
    }

    /// A value, or nil.
    pub(crate) fn value(value: Option<&Vec<u8>>) -> Self {
        value.map_or(Self::Nil, |value| Self::Bytes(value.clone()))
    }
}

pub(crate) const WRONG_TYPE: &str =
    "WRONGTYPE Operation against a key holding the wrong kind of value";
pub(crate) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
pub(crate) const SYNTAX: &str = "ERR syntax error";
