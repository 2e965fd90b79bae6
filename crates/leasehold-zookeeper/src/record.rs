//! The data of a claim's node.
//!
//! The data is for people to read. Only the token of a downgraded claim affects a decision.

use std::time::{Duration, UNIX_EPOCH};

use percent_encoding::AsciiSet;
use zookeeper_client::Stat;

use leasehold_core::store::{
    Claim, HOST_MAX, Share, claim_id_from_bytes, foreign_claimant, parse_words, share_from_parts,
    write_words_encoded,
};
use leasehold_core::{ClaimId, ClaimantInfo, Error, Result, Token, internal};

/// The data of a node that leasehold creates.
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
    write_words_encoded(&claim.info, &mut text, ENCODED);
    text.into_bytes()
}

/// Parses the data of a node; `None` if leasehold did not write it.
pub(super) fn read(data: &[u8]) -> Option<Record> {
    let text = std::str::from_utf8(data).ok()?;
    let mut words = text.strip_prefix(HEAD)?.split(' ');

    let weight = words.next()?.parse().ok()?;
    let capacity = words.next()?.parse().ok()?;
    let token = words.next()?.parse().ok()?;

    Some(Record {
        share: share_from_parts(weight, capacity).ok()?,
        token: Token::new(token),
        info: parse_words(&mut words)?,
    })
}

/// Returns the token of a claim: the number of the transaction that created its node.
///
/// A node that replaces another one keeps the token of that one in its data. The sequence number
/// of a node cannot be the token, because it starts again when a lock's node was removed.
pub(super) fn token(data: Option<&[u8]>, stat: &Stat) -> Result<Token> {
    let record = data.and_then(read);
    if let Some(kept) = record.and_then(|record| record.token) {
        return Ok(kept);
    }

    let created = u64::try_from(stat.czxid).ok().and_then(Token::new);
    created.ok_or_else(|| Error::damaged("the server returned a node without a transaction number"))
}

/// Returns the information about a claim of another library: its data, which is usually an address,
/// and the time of its creation.
pub(super) fn foreign_info(data: &[u8], library: &str, created_millis: i64) -> ClaimantInfo {
    let text = String::from_utf8_lossy(data);
    let printable = text.chars().filter(|c| !c.is_control());

    let mut info = foreign_claimant(library, String::new());
    info.host = printable.take(HOST_MAX / 4).collect::<String>().into();
    info.since = UNIX_EPOCH + Duration::from_millis(created_millis.try_into().unwrap_or(0));
    info
}

/// Returns the id of a claim of another library, made from the transaction that created its node.
///
/// Other libraries use one id for many claims, so the id in the node's name does not identify a
/// claim.
pub(super) fn foreign_id(stat: &Stat) -> ClaimId {
    let mut bytes = [0; 16];
    let (head, number) = bytes.split_at_mut(FOREIGN_HEAD.len());
    head.copy_from_slice(FOREIGN_HEAD);
    number.copy_from_slice(&stat.czxid.to_be_bytes());
    claim_id_from_bytes(bytes)
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

/// Unlike in other stores, a slash is encoded too: the bytes of a node must not change between
/// releases.
const ENCODED: &AsciiSet = &internal::ENCODED.add(b'/');

#[cfg(test)]
mod tests {
    use crate::test_inputs::altered;
    use proptest::prelude::*;
    use std::sync::Arc;

    use super::*;
    use leasehold_core::Name;
    use leasehold_core::store::claimant_here;

    fn claim(info: ClaimantInfo) -> Claim {
        let name = Name::parse("a").expect("a name");
        Claim::new(name, Share::READER, Arc::new(info))
    }

    fn info(label: &str) -> ClaimantInfo {
        let mut info = claimant_here(label).expect("a short label");
        info.since = UNIX_EPOCH + Duration::from_millis(1_763_731_234_567);
        info
    }

    /// Other releases read and write these bytes.
    #[test]
    fn record_has_stable_bytes() {
        let mut info = info("a/b c%ü-_.:@");
        info.host = "node-1".into();
        info.pid = 42;
        info.program = "worker".into();

        let bytes = write(&claim(info), Token::new(7));
        let text = String::from_utf8(bytes).expect("it is encoded");
        assert_eq!(
            text,
            "leasehold 1 1073741824 7 1763731234567 42 node-1 worker a%2Fb%20c%25%C3%BC-_.:@"
        );
    }

    #[test]
    fn record_round_trips() {
        let info = info("two words, and %ü");
        let claim = claim(info.clone());

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
        assert_eq!(&*info.host, "192.168.0.7[2J");
    }

    proptest! {
        #[test]
        fn any_data_of_a_node_is_read_or_foreign(
            data in altered(&[
                "leasehold 1 1073741824 7 1763731234567 42 node-1 worker a%2Fb%20c%25",
            ]),
            created_millis: i64,
        ) {
            let _record = read(&data);
            let _foreign = foreign_info(&data, "a library", created_millis);
        }
    }
}
