//! The replies of a Redis server.

/// A reply in one of the types of RESP2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The value does not exist.
    Nil,
    /// An integer.
    Int(i64),
    /// A status word or a value.
    Bytes(Vec<u8>),
    /// The server refused the request, with the reason.
    Error(String),
    /// A list of replies.
    List(Vec<Reply>),
}

impl Reply {
    /// Whether the value does not exist.
    #[must_use]
    pub fn is_nil(&self) -> bool {
        *self == Self::Nil
    }

    /// Whether the server refused the request.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.error().is_some()
    }

    /// The reason of the refusal, if the server refused the request.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        if let Self::Error(why) = self {
            Some(why)
        } else {
            None
        }
    }

    /// The number. Panics if the reply is not a number.
    #[must_use]
    pub fn int(&self) -> i64 {
        let Self::Int(number) = self else {
            panic!("expected a number: {self:?}")
        };
        *number
    }

    /// The value. Panics if the reply is not a value.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let Self::Bytes(bytes) = self else {
            panic!("expected a value: {self:?}")
        };
        bytes
    }

    /// The value as text. Panics if the reply is not text.
    #[must_use]
    pub fn text(&self) -> &str {
        std::str::from_utf8(self.bytes()).unwrap_or_else(|_| panic!("expected text: {self:?}"))
    }

    /// The list. Panics if the reply is not a list.
    #[must_use]
    pub fn list(&self) -> &[Self] {
        let Self::List(several) = self else {
            panic!("expected a list: {self:?}")
        };
        several
    }

    /// The items of the list as text. Panics if one item is not text.
    #[must_use]
    pub fn texts(&self) -> Vec<&str> {
        self.list().iter().map(Self::text).collect()
    }

    /// Parses the reply at the beginning of `bytes`, and returns it with its size in bytes. Returns
    /// `None` if the reply is not complete yet.
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let end = end_of_line(bytes)?;
        let kind = bytes[0];
        let line = &bytes[1..end];
        let next = end + 2;

        match kind {
            b'+' => Some((Self::Bytes(line.to_vec()), next)),
            b'-' => Some((
                Self::Error(String::from_utf8_lossy(line).into_owned()),
                next,
            )),
            b':' => Some((Self::Int(count(line)), next)),
            b'$' => Self::read_value(bytes, count(line), next),
            b'*' => Self::read_several(bytes, count(line), next),
            _ => panic!("not a RESP2 reply: {}", String::from_utf8_lossy(bytes)),
        }
    }

    fn read_value(bytes: &[u8], size: i64, begin: usize) -> Option<(Self, usize)> {
        let Ok(size) = usize::try_from(size) else {
            return Some((Self::Nil, begin));
        };
        let value = bytes.get(begin..begin + size + 2)?;
        Some((Self::Bytes(value[..size].to_vec()), begin + size + 2))
    }

    fn read_several(bytes: &[u8], number: i64, mut begin: usize) -> Option<(Self, usize)> {
        if number < 0 {
            return Some((Self::Nil, begin));
        }
        let mut several = Vec::new();
        for _ in 0..number {
            let (reply, size) = Self::read(&bytes[begin..])?;
            several.push(reply);
            begin += size;
        }
        Some((Self::List(several), begin))
    }
}

impl From<&str> for Reply {
    fn from(text: &str) -> Self {
        Self::Bytes(text.into())
    }
}

impl From<i64> for Reply {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

/// Measures the reply at the beginning of `bytes` in bytes, without allocating. Returns `None` if
/// the reply is not complete.
pub(super) fn size(bytes: &[u8]) -> Option<usize> {
    let end = end_of_line(bytes)?;
    let line = &bytes[1..end];
    let next = end + 2;
    match bytes[0] {
        b'$' => {
            let whole = usize::try_from(count(line)).map_or(next, |size| next + size + 2);
            (bytes.len() >= whole).then_some(whole)
        }
        b'*' => (0..count(line)).try_fold(next, |at, _| Some(at + size(&bytes[at..])?)),
        _ => Some(next),
    }
}

fn end_of_line(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|two| two == b"\r\n")
}

fn count(line: &[u8]) -> i64 {
    let number = std::str::from_utf8(line)
        .ok()
        .and_then(|line| line.parse().ok());
    number.unwrap_or_else(|| panic!("not a number: {}", String::from_utf8_lossy(line)))
}

#[cfg(test)]
mod tests {
    use super::{Reply, size};

    #[test]
    fn replies_are_parsed_only_when_complete() {
        let list = Reply::List(vec![
            Reply::Int(-7),
            Reply::List(vec![]),
            Reply::Nil,
            Reply::from("a\r\nb"),
        ]);
        check(b"+OK\r\n", &Reply::from("OK"));
        check(b"-ERR no\r\n", &Reply::Error("ERR no".into()));
        check(b"*-1\r\n", &Reply::Nil);
        check(b"$0\r\n\r\n", &Reply::from(""));
        check(b"*4\r\n:-7\r\n*0\r\n$-1\r\n$4\r\na\r\nb\r\n", &list);
    }

    fn check(bytes: &[u8], reply: &Reply) {
        for cut in 0..bytes.len() {
            assert_eq!(
                (Reply::read(&bytes[..cut]), size(&bytes[..cut])),
                (None, None),
                "cut at {cut}"
            );
        }
        let more = [bytes, b"+more\r\n"].concat();
        assert_eq!(Reply::read(&more), Some((reply.clone(), bytes.len())));
        assert_eq!(size(&more), Some(bytes.len()));
    }
}
