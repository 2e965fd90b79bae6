//! The data of a claim's node.
//!
//! The data are for people. Only the token of a downgraded claim decides anything.

use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use zookeeper_client::Stat;

use crate::{Claim, ClaimId, ClaimantInfo, Error, Result, Share, Token};

/// The data that leasehold writes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) share: Share,
    /// The token, if it differs from the number of the node's own creation.
    pub(super) token: Option<Token>,
    pub(super) info: ClaimantInfo,
}

pub(super) fn write(claim: &Claim, token: Option<Token>) -> Vec<u8> {
    let weight = claim.share.weight();
    let capacity = claim.share.capacity();
    let token = token.map_or(0, Token::get);
    let mut text = format!("{HEAD}{weight} {capacity} {token}");
    write_info(&mut text, &claim.info);
    text.into_bytes()
}

fn write_info(text: &mut String, info: &ClaimantInfo) {
    let since = info.since.duration_since(UNIX_EPOCH).unwrap_or_default();
    // Writing to a string cannot fail.
    let _ = write!(text, " {} {}", since.as_millis(), info.pid);
    for word in [&info.host, &info.program, &info.label] {
        text.push(' ');
        text.extend(utf8_percent_encode(word, PLAIN));
    }
}

/// Parses the data of a node; `None` if leasehold did not write them.
pub(super) fn read(data: &[u8]) -> Option<Record> {
    let text = std::str::from_utf8(data).ok()?;
    let mut words = text.strip_prefix(HEAD)?.split(' ');
    let weight = words.next()?.parse().ok()?;
    let capacity = words.next()?.parse().ok()?;
    let token = words.next()?.parse().ok()?;
    Some(Record {
        share: Share::from_parts(weight, capacity).ok()?,
        token: Token::new(token),
        info: parse_info(&mut words)?,
    })
}

fn parse_info<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<ClaimantInfo> {
    let decode = |word| Some(percent_decode_str(word).decode_utf8().ok()?.into_owned());
    let since = Duration::from_millis(words.next()?.parse().ok()?);
    Some(ClaimantInfo {
        since: UNIX_EPOCH + since,
        pid: words.next()?.parse().ok()?,
        host: decode(words.next()?)?,
        program: decode(words.next()?)?,
        label: decode(words.next()?)?,
    })
}

/// Returns the token of a claim: the number of the transaction that created its node.
///
/// A node that replaces another one keeps the token of that one in its data. The sequence number
/// of a node cannot be the token, because it starts again when a lock's node was removed.
pub(super) fn token(data: Option<&[u8]>, stat: &Stat) -> Result<Token> {
    let kept = data.and_then(read).and_then(|record| record.token);
    let created = || u64::try_from(stat.czxid).ok().and_then(Token::new);
    kept.or_else(created)
        .ok_or_else(|| Error::damaged("the server gave a node no transaction number"))
}

/// Returns the information about a claim of another library: its data, mostly an address, and the
/// time of its creation.
pub(super) fn foreign_info(data: &[u8], library: &str, created_millis: i64) -> ClaimantInfo {
    let text = String::from_utf8_lossy(data);
    let since = Duration::from_millis(created_millis.try_into().unwrap_or(0));
    ClaimantInfo {
        host: text
            .chars()
            .filter(|c| !c.is_control())
            .take(ClaimantInfo::HOST_MAX / 4)
            .collect(),
        pid: 0,
        program: library.to_owned(),
        label: String::new(),
        since: SystemTime::UNIX_EPOCH + since,
    }
}

/// Returns the id of a claim of another library, made from the transaction that created its node.
///
/// Other libraries use one id for many claims, so the id in the name of the node does not serve.
pub(super) fn foreign_id(stat: &Stat) -> ClaimId {
    let mut bytes = [0; 16];
    let (head, number) = bytes.split_at_mut(FOREIGN_HEAD.len());
    head.copy_from_slice(FOREIGN_HEAD);
    number.copy_from_slice(&stat.czxid.to_be_bytes());
    ClaimId::from_bytes(bytes)
}

/// Returns the transaction in a [`foreign_id`]; `None` for a claim of leasehold.
pub(super) fn foreign_transaction(id: ClaimId) -> Option<i64> {
    let bytes = id.to_bytes();
    let number = bytes.strip_prefix(FOREIGN_HEAD)?;
    Some(i64::from_be_bytes(number.try_into().ok()?))
}

const HEAD: &str = "leasehold ";

/// A drawn id never starts with these bytes: it has a 4 in its seventh byte.
const FOREIGN_HEAD: &[u8; 8] = b"czxid:\0\0";

/// The characters that are not encoded. A space is encoded, so a space ends a word.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b':')
    .remove(b'@');

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Name;

    #[test]
    fn record_round_trips() {
        let mut info = ClaimantInfo::here("two words, and %ü").expect("a label");
        info.since = UNIX_EPOCH + Duration::from_millis(1_763_731_234_567);
        let claim = Claim {
            name: Name::parse("a").expect("a name"),
            id: ClaimId::draw(),
            share: Share::READER,
            lease: Duration::from_secs(30),
            auto_renew: true,
            info: Arc::new(info.clone()),
        };

        let token = Token::new(7);
        let record = Record {
            share: Share::READER,
            token,
            info,
        };
        assert_eq!(read(&write(&claim, token)), Some(record));
    }

    #[test]
    fn foreign_node_data_is_not_parsed() {
        for data in [
            &b""[..],
            b"192.168.0.7",
            b"leasehold ",
            b"leasehold 0 1 0 0 0 a b c",
            b"\xff",
        ] {
            assert_eq!(read(data), None);
        }
        let info = foreign_info(b"192.168.0.7\x1b[2J", "Curator", 0);
        assert_eq!(info.host, "192.168.0.7[2J");
    }
}
