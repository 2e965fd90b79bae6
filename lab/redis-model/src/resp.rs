//! The protocol between a client and the server: RESP2, or RESP3 after `HELLO 3`.

use crate::reply::Reply;
use crate::server::Message;

/// The version of the protocol on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Resp2,
    Resp3,
}

impl Protocol {
    fn nil(self) -> &'static [u8] {
        match self {
            Self::Resp2 => b"$-1\r\n",
            Self::Resp3 => b"_\r\n",
        }
    }

    /// The beginning of a message with three parts that is not a reply.
    fn push(self) -> &'static [u8] {
        match self {
            Self::Resp2 => b"*3\r\n",
            Self::Resp3 => b">3\r\n",
        }
    }
}

/// Takes the first whole request out of the received bytes.
///
/// Returns `None` if the first request is incomplete. A client of the tests sends requests only.
pub(crate) fn take_request(received: &mut Vec<u8>) -> Option<Vec<Vec<u8>>> {
    let mut rest = received.as_slice();
    let count = take_number(&mut rest, b'*')?;
    let words: Vec<Vec<u8>> = (0..count)
        .map(|_| take_word(&mut rest))
        .collect::<Option<_>>()?;

    let taken = received.len() - rest.len();
    received.drain(..taken);
    Some(words)
}

fn take_word(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let len = take_number(rest, b'$')?;
    let word = rest.get(..len)?.to_vec();
    *rest = rest.get(len + 2..)?;
    Some(word)
}

fn take_number(rest: &mut &[u8], kind: u8) -> Option<usize> {
    let end = rest.iter().position(|byte| *byte == b'\r')?;
    let line = std::str::from_utf8(rest.get(1..end)?).ok()?;
    assert_eq!(rest[0], kind, "a client sends a list of words");
    *rest = rest.get(end + 2..)?;
    line.parse().ok()
}

/// Writes a reply.
pub(crate) fn write(reply: &Reply, protocol: Protocol, to: &mut Vec<u8>) {
    match reply {
        Reply::Nil => to.extend(protocol.nil()),
        Reply::Int(number) => to.extend(format!(":{number}\r\n").bytes()),
        Reply::Status(text) => to.extend(format!("+{text}\r\n").bytes()),
        Reply::Error(text) => to.extend(format!("-{text}\r\n").bytes()),
        Reply::Bytes(bytes) => write_word(bytes, to),
        Reply::List(replies) => {
            to.extend(format!("*{}\r\n", replies.len()).bytes());
            for reply in replies {
                write(reply, protocol, to);
            }
        }
    }
}

/// Writes a message of the server about a subscription.
pub(crate) fn write_subscription(kind: &str, channel: &[u8], protocol: Protocol, to: &mut Vec<u8>) {
    to.extend(protocol.push());
    write_word(kind.as_bytes(), to);
    write_word(channel, to);
    to.extend(b":1\r\n");
}

/// Writes a message to a subscriber.
pub(crate) fn write_message(message: &Message, protocol: Protocol, to: &mut Vec<u8>) {
    to.extend(protocol.push());
    write_word(b"message", to);
    write_word(&message.channel, to);
    write_word(&message.text, to);
}

/// Writes the message about a key that has changed, which only RESP3 has.
pub(crate) fn write_invalidation(key: &[u8], to: &mut Vec<u8>) {
    to.extend(b">2\r\n");
    write_word(b"invalidate", to);
    to.extend(b"*1\r\n");
    write_word(key, to);
}

/// Writes the reply to `HELLO 3`.
pub(crate) fn write_hello(to: &mut Vec<u8>) {
    to.extend(b"%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n");
}

fn write_word(word: &[u8], to: &mut Vec<u8>) {
    to.extend(format!("${}\r\n", word.len()).bytes());
    to.extend(word);
    to.extend(b"\r\n");
}
