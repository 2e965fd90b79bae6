//! The replies of a server, and the types that they are read as.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;

/// A reply, or a part of one.
///
/// The protocol has more types; the commands that leasehold uses do not tell them apart: RESP2 has
/// an array with twice as many parts in place of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Nil,
    Int(i64),
    Text(ReplyText),
    Array(Vec<Value>),
    Error(ServerError),
}

/// A text in a reply. A short one takes no memory of its own: the replies to an uncontended acquire
/// and release are short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReplyText {
    Short { len: u8, bytes: [u8; SHORT_MAX] },
    Long(Box<[u8]>),
}

/// More than the 39 bytes of a reply to a holder, and no more than what its neighbours in a reply
/// take.
const SHORT_MAX: usize = 46;

impl ReplyText {
    /// Returns the text if it is UTF-8.
    pub(crate) fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(self).ok()
    }

    fn into_vec(self) -> Vec<u8> {
        match self {
            Self::Short { .. } => self.to_vec(),
            Self::Long(bytes) => bytes.into_vec(),
        }
    }
}

impl Deref for ReplyText {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl<T: AsRef<[u8]>> From<T> for ReplyText {
    fn from(text: T) -> Self {
        let text = text.as_ref();
        let mut bytes = [0; SHORT_MAX];
        match (bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(short), Ok(len)) => {
                short.copy_from_slice(text);
                Self::Short { len, bytes }
            }
            _ => Self::Long(text.into()),
        }
    }
}

/// An error that a server sent: a code and, behind the first space, its detail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerError(Arc<str>);

impl ServerError {
    pub(crate) fn new(text: &[u8]) -> Self {
        Self(String::from_utf8_lossy(text).into())
    }

    pub(crate) fn code(&self) -> &str {
        let code = self.0.split(' ').next();
        code.unwrap_or_default()
    }

    pub(crate) fn detail(&self) -> Option<&str> {
        let (_, detail) = self.0.split_once(' ')?;
        Some(detail)
    }

    /// Returns the error without what follows its first sentence, and without the arguments of an
    /// unknown command, which may be a password.
    pub(crate) fn first_sentence(&self) -> Self {
        let command = self.0.split(", with args").next().unwrap_or_default();
        let sentence = command.split(". ").next();
        Self(sentence.unwrap_or_default().into())
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A type that a reply is read as.
pub(crate) trait FromReply: Sized {
    /// Returns `None` if the reply has another type.
    fn from_reply(reply: Value) -> Option<Self>;

    /// Reads the parts of an array.
    fn from_parts(parts: Vec<Value>) -> Option<Vec<Self>> {
        parts.into_iter().map(Self::from_reply).collect()
    }

    /// Reads a text as a list.
    fn from_text(_text: Vec<u8>) -> Option<Vec<Self>> {
        None
    }
}

impl FromReply for Value {
    fn from_reply(reply: Value) -> Option<Self> {
        Some(reply)
    }
}

/// A reply that says only that the request was executed.
impl FromReply for () {
    fn from_reply(reply: Value) -> Option<Self> {
        (!matches!(reply, Value::Error(_))).then_some(())
    }
}

impl FromReply for ReplyText {
    fn from_reply(reply: Value) -> Option<Self> {
        match reply {
            Value::Text(text) => Some(text),
            Value::Nil | Value::Int(_) | Value::Array(_) | Value::Error(_) => None,
        }
    }
}

impl FromReply for String {
    fn from_reply(reply: Value) -> Option<Self> {
        match reply {
            Value::Text(text) => Self::from_utf8(text.into_vec()).ok(),
            Value::Int(number) => Some(number.to_string()),
            Value::Nil | Value::Array(_) | Value::Error(_) => None,
        }
    }
}

impl FromReply for u64 {
    fn from_reply(reply: Value) -> Option<Self> {
        match reply {
            Value::Int(number) => number.try_into().ok(),
            Value::Text(text) => text.as_str()?.parse().ok(),
            Value::Nil | Value::Array(_) | Value::Error(_) => None,
        }
    }
}

impl FromReply for u32 {
    fn from_reply(reply: Value) -> Option<Self> {
        u64::from_reply(reply)?.try_into().ok()
    }
}

/// Only as a part of `Vec<u8>`.
impl FromReply for u8 {
    fn from_reply(_reply: Value) -> Option<Self> {
        None
    }

    fn from_text(text: Vec<u8>) -> Option<Vec<Self>> {
        Some(text)
    }
}

impl<T: FromReply> FromReply for Vec<T> {
    fn from_reply(reply: Value) -> Option<Self> {
        match reply {
            Value::Array(parts) => T::from_parts(parts),
            Value::Text(text) => T::from_text(text.into_vec()),
            Value::Nil => Some(Vec::new()),
            Value::Int(_) | Value::Error(_) => None,
        }
    }
}

/// Two parts. A list of pairs is one array of all their parts.
impl<A: FromReply, B: FromReply> FromReply for (A, B) {
    fn from_reply(reply: Value) -> Option<Self> {
        let [first, second] = parts_of(reply)?;
        Some((A::from_reply(first)?, B::from_reply(second)?))
    }

    fn from_parts(parts: Vec<Value>) -> Option<Vec<Self>> {
        let mut parts = parts.into_iter();
        let mut pairs = Vec::with_capacity(parts.len() / 2);
        while let Some(first) = parts.next() {
            pairs.push((A::from_reply(first)?, B::from_reply(parts.next()?)?));
        }
        Some(pairs)
    }
}

impl<A: FromReply, B: FromReply, C: FromReply> FromReply for (A, B, C) {
    fn from_reply(reply: Value) -> Option<Self> {
        let [first, second, third] = parts_of(reply)?;
        let first = A::from_reply(first)?;
        Some((first, B::from_reply(second)?, C::from_reply(third)?))
    }
}

impl<K: FromReply + Eq + Hash, V: FromReply> FromReply for HashMap<K, V> {
    fn from_reply(reply: Value) -> Option<Self> {
        let pairs = Vec::<(K, V)>::from_reply(reply)?;
        Some(pairs.into_iter().collect())
    }
}

fn parts_of<const COUNT: usize>(reply: Value) -> Option<[Value; COUNT]> {
    match reply {
        Value::Array(parts) => parts.try_into().ok(),
        Value::Nil | Value::Int(_) | Value::Text(_) | Value::Error(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    #[test]
    fn replies_are_read_as_the_types_of_their_commands() {
        let clock = Value::Array(vec![text("1750000000"), text("5")]);
        assert_eq!(<(u64, u64)>::from_reply(clock), Some((1_750_000_000, 5)));
        let counts = Value::Array(vec![text("a"), Value::Int(2)]);
        assert_eq!(
            Vec::<(String, u64)>::from_reply(counts.clone()),
            Some(vec![("a".to_owned(), 2)])
        );
        let counts = HashMap::<String, u32>::from_reply(counts).expect("pairs");
        assert_eq!(counts["a"], 2);
        let page = Value::Array(vec![text("0"), text("x")]);
        assert_eq!(
            Vec::<Vec<u8>>::from_reply(page),
            Some(vec![b"0".to_vec(), b"x".to_vec()])
        );
        assert_eq!(Vec::<String>::from_reply(Value::Nil), Some(Vec::new()));
    }

    #[test]
    fn text_of_any_length_is_kept() {
        for len in [0, 1, SHORT_MAX, SHORT_MAX + 1, 300] {
            let text = vec![b'x'; len];
            assert_eq!(*ReplyText::from(&text), *text);
        }
    }

    #[test]
    fn reply_of_another_type_is_refused() {
        let error = || Value::Error(ServerError::new(b"ERR no"));
        assert_eq!(<()>::from_reply(error()), None);
        assert_eq!(String::from_reply(error()), None);
        assert_eq!(u64::from_reply(Value::Int(-1)), None);
        assert_eq!(u32::from_reply(text("4294967296")), None);
        assert_eq!(String::from_reply(Value::Text([0xff].into())), None);
        let three = || Value::Array(vec![Value::Int(1), Value::Int(2), Value::Int(3)]);
        assert_eq!(<(u64, u64)>::from_reply(three()), None);
        assert_eq!(Vec::<(u64, u64)>::from_reply(three()), None);
    }

    #[test]
    fn error_has_a_code_and_a_detail() {
        let error = ServerError::new(b"MOVED 3999 127.0.0.1:6381");
        assert_eq!(
            (error.code(), error.detail()),
            ("MOVED", Some("3999 127.0.0.1:6381"))
        );
        let error = ServerError::new(b"DENIED");
        assert_eq!((error.code(), error.detail()), ("DENIED", None));
    }
}
