//! Requests as a server reads them, with the ids in them, and why one has no reply.

use std::fmt;
use std::io::{self, Write as _};
use std::ops::Deref;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};

use super::value::ServerError;
use leasehold_core::ClaimId;
use leasehold_core::store::{claim_id_from_bytes, draw_claim_id};

/// A request that writes itself into the buffer of a connection.
pub(crate) trait Request {
    fn write(&self, buffer: &mut Vec<u8>);
}

/// A command and its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    count: usize,
    parts: Vec<u8>,
}

pub(crate) fn command(name: &str) -> Command {
    let mut command = Command {
        count: 0,
        parts: Vec::new(),
    };
    command.arg(name);
    command
}

impl Command {
    pub(crate) fn arg(&mut self, argument: impl AsRef<[u8]>) -> &mut Self {
        self.count += 1;
        write_part(&mut self.parts, argument.as_ref());
        self
    }
}

impl Request for Command {
    fn write(&self, buffer: &mut Vec<u8>) {
        write_count(buffer, self.count);
        buffer.extend_from_slice(&self.parts);
    }
}

/// Begins a request of `count` parts.
pub(super) fn write_count(buffer: &mut Vec<u8>, count: usize) {
    write_header(buffer, b'*', count);
}

pub(super) fn write_part(buffer: &mut Vec<u8>, part: &[u8]) {
    write_header(buffer, b'$', part.len());
    buffer.extend_from_slice(part);
    buffer.extend_from_slice(b"\r\n");
}

/// Writes a number as a part.
pub(super) fn write_number(buffer: &mut Vec<u8>, number: usize) {
    write_part(buffer, digits(number, &mut [0; DIGITS_MAX]));
}

/// Writes a part in place: its length is known only behind it, and then moves to its front.
pub(super) fn write_shown(buffer: &mut Vec<u8>, part: &impl fmt::Display) {
    let begin = buffer.len();
    write!(buffer, "{part}").expect("memory takes every text");
    let end = buffer.len();
    write_header(buffer, b'$', end - begin);
    buffer[begin..].rotate_left(end - begin);
    buffer.extend_from_slice(b"\r\n");
}

fn write_header(buffer: &mut Vec<u8>, kind: u8, number: usize) {
    buffer.push(kind);
    buffer.extend_from_slice(digits(number, &mut [0; DIGITS_MAX]));
    buffer.extend_from_slice(b"\r\n");
}

/// The digits of the largest `usize`.
const DIGITS_MAX: usize = 20;

/// Returns the decimal digits of a number. The machinery of `format!` would take longer than the
/// rest of a request.
fn digits(mut number: usize, space: &mut [u8; DIGITS_MAX]) -> &[u8] {
    let mut begin = DIGITS_MAX;
    loop {
        begin -= 1;
        space[begin] = b"0123456789"[number % 10];
        number /= 10;
        if number == 0 {
            return &space[begin..];
        }
    }
}

/// All characters except those that are plain in keys, patterns and shells.
pub(crate) const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'/')
    .remove(b':')
    .remove(b'@');

/// Returns 64 new random bits, which cannot be guessed.
pub(crate) fn fresh_client() -> String {
    URL_SAFE_NO_PAD.encode(&draw_claim_id().to_bytes()[..8])
}

/// The text of a claim's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdText([u8; 22]);

pub(crate) fn id_text(id: ClaimId) -> IdText {
    let mut text = [0; 22];
    let encoded = URL_SAFE_NO_PAD.encode_slice(id.to_bytes(), &mut text);
    encoded.expect("the text has room for 16 bytes");
    IdText(text)
}

impl Deref for IdText {
    type Target = str;

    fn deref(&self) -> &str {
        std::str::from_utf8(&self.0).expect("base64 is ASCII")
    }
}

impl fmt::Display for IdText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

pub(crate) fn id_from(text: &str) -> Option<ClaimId> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    Some(claim_id_from_bytes(bytes.try_into().ok()?))
}

/// Why a request has no reply that can be used.
#[derive(Clone, Debug)]
pub(crate) enum RequestError {
    /// The server refused the request.
    Refused(ServerError),
    /// The connection broke. The server may have executed the request, or may execute it later.
    Broken(Arc<io::Error>),
    /// The server sent what is no reply, and the connection was closed.
    Malformed(Malformed),
}

/// What is wrong with the bytes of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// They are no reply of Redis.
    Bytes,
    /// A reply, or a part that it announces, is larger than a client accepts.
    Size,
    /// A reply without a request.
    Unrequested,
}

impl RequestError {
    pub(crate) fn broken(error: io::Error) -> Self {
        Self::Broken(Arc::new(error))
    }

    /// The error of a connection that the server has closed.
    pub(super) fn ended() -> Self {
        let text = "the server has closed it";
        Self::broken(io::Error::new(io::ErrorKind::UnexpectedEof, text))
    }

    /// The error of a connection that this client has closed.
    pub(super) fn closed() -> Self {
        let text = "this client has closed it";
        Self::broken(io::Error::new(io::ErrorKind::BrokenPipe, text))
    }

    /// The first word of the server's error.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(error) => Some(error.code()),
            Self::Broken(_) | Self::Malformed(_) => None,
        }
    }

    /// What follows the first word of the server's error.
    pub(crate) fn detail(&self) -> Option<&str> {
        match self {
            Self::Refused(error) => error.detail(),
            Self::Broken(_) | Self::Malformed(_) => None,
        }
    }

    pub(crate) fn is_io_error(&self) -> bool {
        matches!(self, Self::Broken(_))
    }

    /// Whether the connection was closed, by any side.
    pub(crate) fn is_connection_dropped(&self) -> bool {
        use io::ErrorKind::{
            BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof,
        };
        let Self::Broken(error) = self else {
            return false;
        };
        matches!(
            error.kind(),
            BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof
        )
    }
}

impl From<ServerError> for RequestError {
    fn from(error: ServerError) -> Self {
        Self::Refused(error)
    }
}

impl From<Malformed> for RequestError {
    fn from(error: Malformed) -> Self {
        Self::Malformed(error)
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::Broken(error) => error.fmt(f),
            Self::Malformed(Malformed::Bytes) => f.write_str("the server sent no reply of Redis"),
            Self::Malformed(Malformed::Size) => f.write_str("the server sent too large a reply"),
            Self::Malformed(Malformed::Unrequested) => {
                f.write_str("the server sent a reply without a request")
            }
        }
    }
}

impl std::error::Error for RequestError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Broken(error) => Some(error),
            Self::Refused(_) | Self::Malformed(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn command_is_written_as_an_array_of_its_parts() {
        let mut request = command("SET");
        request.arg("a").arg(String::from("x\r\n"));
        let mut buffer = b"+".to_vec();
        request.write(&mut buffer);
        assert_eq!(buffer, b"+*3\r\n$3\r\nSET\r\n$1\r\na\r\n$3\r\nx\r\n\r\n");
    }

    #[test]
    fn shown_part_is_written_behind_its_length() {
        let mut buffer = b"+".to_vec();
        write_shown(&mut buffer, &format_args!("{:>11}|", "x"));
        write_shown(&mut buffer, &"");
        assert_eq!(buffer, b"+$12\r\n          x|\r\n$0\r\n\r\n");
    }

    proptest! {
        #[test]
        fn digits_are_those_of_the_number(number: usize) {
            let text = number.to_string();
            let mut space = [0; DIGITS_MAX];
            prop_assert_eq!(digits(number, &mut space), text.as_bytes());
        }
    }
}
