//! Finds the replies in what a server sends, and parses them.
//!
//! A reply is first found, and then parsed. So a reply that arrives in many parts is looked at
//! once, and memory is reserved only for parts that have arrived.

use super::request::Malformed;
use super::value::{ServerError, Value};

/// How large a reply may be, with what its parts take in memory.
pub(super) const REPLY_MAX: usize = 64 << 20;
/// How large a reply may be before the login is complete: who replies is not known yet.
pub(super) const LOGIN_REPLY_MAX: usize = 64 << 10;
/// How long a line may be: an error, a number or a length.
const LINE_MAX: usize = 64 << 10;
/// How deep arrays may contain one another. A list of the commands of Redis has four levels.
const DEPTH_MAX: usize = 8;
/// What a part of a reply takes in memory beside its text, and what the allocator adds.
const PART_SIZE: usize = size_of::<Value>() + 16;
/// How much is read at once, and kept between two replies.
const CHUNK: usize = 16 << 10;

/// The bytes of a server that were not used yet.
#[derive(Debug)]
pub(super) struct Reader {
    /// The bytes up to `filled`, and space for more.
    buffer: Vec<u8>,
    filled: usize,
    /// Where the next reply begins.
    begin: usize,
    scan: FrameScan,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self {
            buffer: Vec::new(),
            filled: 0,
            begin: 0,
            scan: FrameScan::default(),
        }
    }

    /// Returns the space for more bytes. It is never empty.
    pub(super) fn space(&mut self) -> &mut [u8] {
        if self.begin == self.filled {
            (self.begin, self.filled) = (0, 0);
            if self.buffer.len() > CHUNK {
                self.buffer = Vec::new();
            }
        }
        if self.filled == self.buffer.len() {
            self.make_space();
        }
        &mut self.buffer[self.filled..]
    }

    #[cold]
    fn make_space(&mut self) {
        if self.begin > 0 {
            self.buffer.copy_within(self.begin..self.filled, 0);
            self.filled -= self.begin;
            self.begin = 0;
            return;
        }

        // Twice the size, so that a large reply is moved a few times only.
        let len = self.buffer.len();
        let larger = (2 * len).min(REPLY_MAX).max(len + CHUNK);
        self.buffer.reserve_exact(larger - len);
        self.buffer.resize(larger, 0);
    }

    /// Adds the first `count` bytes of [`space`](Self::space), which were read.
    pub(super) fn add(&mut self, count: usize) {
        self.filled += count;
    }

    /// Returns the bytes of the reply that is not complete.
    pub(super) fn rest(&self) -> &[u8] {
        &self.buffer[self.begin..self.filled]
    }

    /// Returns the next reply, if it is complete. After an error, the stream cannot be used.
    pub(super) fn next(&mut self, largest: usize) -> Result<Option<Frame<'_>>, Malformed> {
        let bytes = &self.buffer[self.begin..self.filled];
        if bytes.is_empty() || !self.scan.is_complete(bytes, largest)? {
            return Ok(None);
        }
        let frame = Frame(&bytes[..self.scan.at]);
        self.begin += self.scan.at;
        self.scan = FrameScan::default();
        Ok(Some(frame))
    }
}

/// Looks for the end of a reply, and continues where it stopped.
#[derive(Debug, Default)]
struct FrameScan {
    /// The length of the parts that are complete.
    at: usize,
    /// How many bytes behind them have no end of a line.
    searched: usize,
    /// How many parts each array lacks, from the outermost one on.
    lacking: [usize; DEPTH_MAX],
    depth: usize,
    /// What the complete parts take in memory.
    size: usize,
}

impl FrameScan {
    fn is_complete(&mut self, bytes: &[u8], largest: usize) -> Result<bool, Malformed> {
        loop {
            let Some(part) = Header::read(bytes, self.at, &mut self.searched)? else {
                return Ok(false);
            };
            let left = largest.saturating_sub(self.size);
            let size = (part.end - self.at).saturating_add(PART_SIZE);
            let behind = part.text.map_or(0, |len| len.saturating_add(2));
            let parts = part.parts.saturating_mul(PART_SIZE);
            if size.saturating_add(behind).saturating_add(parts) > left {
                return Err(Malformed::Size);
            }

            let end = part.end + behind;
            if end > bytes.len() {
                return Ok(false);
            }
            if part.text.is_some() && !bytes[..end].ends_with(b"\r\n") {
                return Err(Malformed::Bytes);
            }
            self.size += size + behind;
            (self.at, self.searched) = (end, 0);

            if part.parts > 0 {
                let array = self.lacking.get_mut(self.depth);
                *array.ok_or(Malformed::Size)? = part.parts;
                self.depth += 1;
            } else if self.ends() {
                return Ok(true);
            }
        }
    }

    /// Notes the end of a part; returns whether the whole reply ends with it.
    fn ends(&mut self) -> bool {
        while let Some(innermost) = self.depth.checked_sub(1) {
            self.lacking[innermost] -= 1;
            if self.lacking[innermost] > 0 {
                return false;
            }
            self.depth = innermost;
        }
        true
    }
}

/// The line with which a part begins.
struct Header<'a> {
    kind: u8,
    line: &'a [u8],
    /// Where the line ends.
    end: usize,
    /// The length of the text behind the line.
    text: Option<usize>,
    /// How many parts follow.
    parts: usize,
}

impl<'a> Header<'a> {
    /// Reads the line at `at`, if it is complete. `searched` bytes of it are known to have no end.
    fn read(bytes: &'a [u8], at: usize, searched: &mut usize) -> Result<Option<Self>, Malformed> {
        let line = &bytes[at..];
        if line.first().is_some_and(|kind| !KINDS.contains(kind)) {
            return Err(Malformed::Bytes);
        }
        let Some(len) = end_of_line(line, *searched) else {
            // The last byte may be the first one of the end.
            *searched = line.len().saturating_sub(1);
            return if line.len() > LINE_MAX {
                Err(Malformed::Size)
            } else {
                Ok(None)
            };
        };
        let (kind, line) = line[..len].split_first().ok_or(Malformed::Bytes)?;

        let mut header = Self {
            kind: *kind,
            line,
            end: at + len + 2,
            text: None,
            parts: 0,
        };
        match kind {
            b'$' | b'=' | b'!' => header.text = length(line)?,
            b'*' | b'~' | b'>' => header.parts = length(line)?.unwrap_or(0),
            b'%' | b'|' => header.parts = length(line)?.unwrap_or(0).saturating_mul(2),
            _ => {}
        }
        if *kind == b'|' {
            // The value follows its attributes.
            header.parts = header.parts.saturating_add(1);
        }
        Ok(Some(header))
    }

    /// Whether this is the null of RESP2.
    fn is_nil(&self) -> bool {
        self.line == b"-1"
    }
}

/// The first bytes of all types.
const KINDS: &[u8] = b"+-:_,#($=!*~>%|";

fn end_of_line(line: &[u8], searched: usize) -> Option<usize> {
    let mut from = searched;
    loop {
        let at = from + line[from..].iter().position(|byte| *byte == b'\r')?;
        match line.get(at + 1) {
            Some(b'\n') => return Some(at),
            Some(_) => from = at + 1,
            None => return None,
        }
    }
}

/// Parses a length; `None` is that of the null of RESP2.
fn length(digits: &[u8]) -> Result<Option<usize>, Malformed> {
    if digits == b"-1" {
        return Ok(None);
    }
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Malformed::Bytes);
    }
    let digits = std::str::from_utf8(digits).map_err(|_| Malformed::Bytes)?;
    // A length with more digits is too large anyway.
    digits.parse().map(Some).map_err(|_| Malformed::Size)
}

/// A whole reply, or a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a>(&'a [u8]);

impl<'a> Frame<'a> {
    /// Whether this is a push of RESP3.
    pub(super) fn is_push(self) -> bool {
        self.0[0] == b'>'
    }

    /// Returns the word with which an array or a push begins.
    pub(super) fn word(self) -> Option<&'a [u8]> {
        let mut bytes = self.0;
        let count = next_header(&mut bytes).ok()?.parts;
        if count == 0 {
            return None;
        }
        next_text(&mut bytes)
    }

    /// Returns channel and text of a message.
    pub(super) fn message(self) -> Option<(&'a str, &'a str)> {
        let mut bytes = self.0;
        let count = next_header(&mut bytes).ok()?.parts;
        if count != 3 || next_text(&mut bytes)? != b"message" {
            return None;
        }
        let channel = std::str::from_utf8(next_text(&mut bytes)?).ok()?;
        let text = std::str::from_utf8(next_text(&mut bytes)?).ok()?;
        Some((channel, text))
    }

    pub(super) fn parse(self) -> Result<Value, Malformed> {
        let mut bytes = self.0;
        parse(&mut bytes)
    }
}

/// Takes the next line of a whole reply.
fn next_header<'a>(bytes: &mut &'a [u8]) -> Result<Header<'a>, Malformed> {
    let header = Header::read(bytes, 0, &mut 0)?.ok_or(Malformed::Bytes)?;
    *bytes = &bytes[header.end..];
    Ok(header)
}

/// Takes the next part, if it is a text.
fn next_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let header = next_header(bytes).ok()?;
    match header.text {
        Some(len) => Some(text_behind(bytes, len)),
        None if header.kind == b'+' => Some(header.line),
        None => None,
    }
}

fn text_behind<'a>(bytes: &mut &'a [u8], len: usize) -> &'a [u8] {
    let text = &bytes[..len];
    *bytes = &bytes[len + 2..];
    text
}

/// Parses the next part of a whole reply. Its depth is bounded.
fn parse(bytes: &mut &[u8]) -> Result<Value, Malformed> {
    let header = next_header(bytes)?;
    let line = header.line;
    Ok(match (header.kind, header.text) {
        (b'$', Some(len)) => Value::Text(text_behind(bytes, len).into()),
        (b'!', Some(len)) => Value::Error(ServerError::new(text_behind(bytes, len))),
        (b'=', Some(len)) => {
            // The format of the text and a colon precede it.
            let text = text_behind(bytes, len);
            Value::Text(text.get(4..).ok_or(Malformed::Bytes)?.into())
        }
        (b'-', _) => Value::Error(ServerError::new(line)),
        (b'+' | b',' | b'(', _) => Value::Text(line.into()),
        (b':', _) => Value::Int(number(line)?),
        (b'#', _) if line == b"t" => Value::Int(1),
        (b'#', _) if line == b"f" => Value::Int(0),
        (b'_', _) => Value::Nil,
        (b'$' | b'*', None) if header.is_nil() => Value::Nil,
        (b'*' | b'~' | b'>' | b'%', None) => {
            let mut parts = Vec::with_capacity(header.parts);
            for _ in 0..header.parts {
                parts.push(parse(bytes)?);
            }
            Value::Array(parts)
        }
        (b'|', None) => {
            for _ in 1..header.parts {
                parse(bytes)?;
            }
            parse(bytes)?
        }
        _ => return Err(Malformed::Bytes),
    })
}

fn number(digits: &[u8]) -> Result<i64, Malformed> {
    let digits = std::str::from_utf8(digits).map_err(|_| Malformed::Bytes)?;
    digits.parse().map_err(|_| Malformed::Bytes)
}

/// Parses the bytes of a reply.
#[cfg(test)]
pub(crate) fn parse_reply(bytes: &[u8]) -> Option<Value> {
    let mut reader = Reader::new();
    tests::fill(&mut reader, bytes);
    let frame = reader.next(REPLY_MAX).ok()??;
    frame.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::test_inputs::altered;

    pub(super) fn fill(reader: &mut Reader, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = reader.space();
            let count = space.len().min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            reader.add(count);
            bytes = &bytes[count..];
        }
    }

    /// Returns the replies in the parts of a stream, until the first error.
    fn read<'a>(
        parts: impl IntoIterator<Item = &'a [u8]>,
        largest: usize,
    ) -> (Vec<Value>, Option<Malformed>) {
        let mut reader = Reader::new();
        let mut replies = Vec::new();
        for part in parts {
            fill(&mut reader, part);
            loop {
                match reader.next(largest).and_then(|frame| {
                    let parsed = frame.map(Frame::parse);
                    parsed.transpose()
                }) {
                    Ok(Some(reply)) => replies.push(reply),
                    Ok(None) => break,
                    Err(error) => return (replies, Some(error)),
                }
            }
        }
        (replies, None)
    }

    fn whole(bytes: &[u8]) -> (Vec<Value>, Option<Malformed>) {
        read([bytes], REPLY_MAX)
    }

    /// Returns a reply and its bytes.
    fn replies() -> impl Strategy<Value = (Value, Vec<u8>)> {
        let text = || vec(any::<u8>(), 0..90);
        let line = "[a-zA-Z0-9 .:\\-]{0,40}";
        let leaf = prop_oneof![
            Just((Value::Nil, b"$-1\r\n".to_vec())),
            Just((Value::Nil, b"*-1\r\n".to_vec())),
            Just((Value::Nil, b"_\r\n".to_vec())),
            Just((Value::Int(1), b"#t\r\n".to_vec())),
            any::<i64>()
                .prop_map(|number| { (Value::Int(number), format!(":{number}\r\n").into_bytes()) }),
            line.prop_map(|line| {
                (
                    Value::Text(line.clone().into()),
                    format!("+{line}\r\n").into_bytes(),
                )
            }),
            line.prop_map(|line| {
                let error = Value::Error(ServerError::new(line.as_bytes()));
                (error, format!("-{line}\r\n").into_bytes())
            }),
            (text(), prop_oneof![Just(b'$'), Just(b'='), Just(b'!')]).prop_map(|(text, kind)| {
                let format: &[u8] = if kind == b'=' { b"txt:" } else { b"" };
                let mut bytes = vec![kind];
                bytes.extend(format!("{}\r\n", format.len() + text.len()).into_bytes());
                bytes.extend([format, &text, b"\r\n"].concat());
                let value = if kind == b'!' {
                    Value::Error(ServerError::new(&text))
                } else {
                    Value::Text(text.into())
                };
                (value, bytes)
            }),
        ];
        leaf.prop_recursive(4, 40, 6, |part| {
            (
                vec(part, 0..6),
                prop_oneof![Just('*'), Just('~'), Just('%'), Just('|')],
            )
                .prop_map(|(mut parts, kind)| {
                    if kind == '|' && parts.is_empty() {
                        parts.push((Value::Nil, b"_\r\n".to_vec()));
                    }
                    let count = match kind {
                        '%' => {
                            parts.truncate(parts.len() / 2 * 2);
                            parts.len() / 2
                        }
                        '|' => {
                            parts.truncate((parts.len() - 1) / 2 * 2 + 1);
                            parts.len() / 2
                        }
                        _ => parts.len(),
                    };
                    let mut bytes = format!("{kind}{count}\r\n").into_bytes();
                    bytes.extend(parts.iter().flat_map(|(_, bytes)| bytes));
                    let mut values: Vec<Value> =
                        parts.into_iter().map(|(value, _)| value).collect();
                    let value = match kind {
                        '|' => values.pop().expect("the value behind its attributes"),
                        _ => Value::Array(values),
                    };
                    (value, bytes)
                })
        })
    }

    proptest! {
        #[test]
        fn replies_are_the_same_in_every_split(
            replies in vec(replies(), 1..4),
            largest in 1..40_usize,
        ) {
            let stream: Vec<u8> = replies.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
            let values: Vec<Value> = replies.into_iter().map(|(value, _)| value).collect();

            prop_assert_eq!(whole(&stream), (values.clone(), None));
            prop_assert_eq!(read(stream.chunks(largest), REPLY_MAX), (values.clone(), None));
            for at in 0..=stream.len() {
                let (first, second) = stream.split_at(at);
                prop_assert_eq!(read([first, second], REPLY_MAX), (values.clone(), None));
            }
        }

        #[test]
        fn garbage_ends_in_replies_or_an_error(
            bytes in prop_oneof![
                vec(any::<u8>(), 0..200),
                vec(proptest::sample::select(b"+-:_,#($=!*~>%|0123456789\r\na".to_vec()), 0..200),
                altered(&[
                    "*3\r\n$1\r\na\r\n:5\r\n*2\r\n+b\r\n$-1\r\n",
                    ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n",
                    "%1\r\n+proto\r\n:3\r\n-ERR no\r\n",
                ]),
            ],
        ) {
            let expected = whole(&bytes);
            prop_assert_eq!(read(bytes.chunks(1), REPLY_MAX), expected);
            let mut reader = Reader::new();
            fill(&mut reader, &bytes);
            while let Ok(Some(frame)) = reader.next(REPLY_MAX) {
                let _message = (frame.message(), frame.word(), frame.is_push());
            }
        }
    }

    #[test]
    fn message_is_read_in_place() {
        let mut reader = Reader::new();
        fill(
            &mut reader,
            b">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nbc\r\n>2\r\n$10\r\ninvalidate\r\n_\r\n",
        );
        let message = reader.next(REPLY_MAX).expect("good").expect("whole");
        assert!(message.is_push());
        assert_eq!(message.message(), Some(("a", "bc")));
        let other = reader.next(REPLY_MAX).expect("good").expect("whole");
        assert_eq!(other.message(), None);
        assert_eq!(other.word(), Some(&b"invalidate"[..]));
    }

    /// The part that is too large has not arrived.
    #[test]
    fn announced_size_is_refused_at_once() {
        let nested = |levels: usize| "*1\r\n".repeat(levels) + ":1\r\n";
        for too_large in [
            "$4000000000\r\n",
            "$67108865\r\n",
            "$18446744073709551616\r\n",
            "*2147483647\r\n",
            "*9223372036854775807\r\n",
            "*18446744073709551615\r\n:1\r\n",
            "%9223372036854775807\r\n",
            "|18446744073709551615\r\n",
            "*2\r\n$60000000\r\n",
            &nested(DEPTH_MAX + 1),
        ] {
            let mut bytes = too_large.as_bytes().to_vec();
            if too_large.contains("$60000000") {
                bytes.resize(bytes.len() + 60_000_000, b'x');
                bytes.extend(b"\r\n$60000000\r\n");
            }
            let refused = (Vec::new(), Some(Malformed::Size));
            assert_eq!(whole(&bytes), refused, "{too_large}");
        }
        assert_eq!(whole(nested(DEPTH_MAX).as_bytes()).1, None);
    }

    #[test]
    fn negative_length_is_malformed() {
        for wrong in [
            "$-5\r\n",
            "*-7\r\n",
            "$+1\r\n",
            "$\r\n",
            ":99999999999999999999\r\n",
            "HTTP",
        ] {
            assert_eq!(whole(wrong.as_bytes()).1, Some(Malformed::Bytes), "{wrong}");
        }
    }

    /// Reads an endless stream until it is refused, and returns the size of the buffer.
    fn buffer_at_the_refusal(begin: &[u8], repeated: &[u8], largest: usize) -> usize {
        let mut reader = Reader::new();
        fill(&mut reader, begin);
        loop {
            match reader.next(largest) {
                Ok(_) => fill(&mut reader, repeated),
                Err(error) => {
                    assert_eq!(error, Malformed::Size);
                    return reader.buffer.capacity();
                }
            }
        }
    }

    #[test]
    fn endless_reply_takes_no_more_than_the_bound() {
        let chunk = [b'x'; CHUNK];
        let text = [b"$16000\r\n", &chunk[..16000], b"\r\n"].concat();
        for (begin, repeated, largest) in [
            (&b"+"[..], &chunk[..], REPLY_MAX),
            (b"-", &chunk, LOGIN_REPLY_MAX),
            (b"*100000\r\n", b"*1000\r\n", REPLY_MAX),
            (b"*100000\r\n", b":1\r\n", LOGIN_REPLY_MAX),
            (b"*1000\r\n", &text, LOGIN_REPLY_MAX),
            (b"*10000\r\n", &text, REPLY_MAX),
        ] {
            let buffer = buffer_at_the_refusal(begin, repeated, largest);
            assert!(buffer <= 2 * largest, "{buffer}");
        }
    }

    /// Many small parts take more memory than bytes.
    #[test]
    fn parts_count_with_their_size_in_memory() {
        let count = REPLY_MAX / (PART_SIZE + 4);
        let reply = |count: usize| format!("*{count}\r\n") + &":1\r\n".repeat(count);
        assert_eq!(whole(reply(count - 2).as_bytes()).1, None);
        assert_eq!(whole(reply(count + 1).as_bytes()).1, Some(Malformed::Size));
    }
}
