//! What is written in a claim's node, for people; no decision but that of a downgraded claim's token rests on it.

use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::{Claim, ClaimantInfo, Share, Token};

/// Everything but these is encoded, so that a space ends a word.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b':')
    .remove(b'@');
const HEAD: &str = "leasehold ";

/// What a claim's node says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) share: Share,
    /// The token, where it is not the number of the node's own creation.
    pub(super) token: Option<Token>,
    pub(super) info: ClaimantInfo,
}

pub(super) fn write(claim: &Claim, token: Option<Token>) -> Vec<u8> {
    let (share, info) = (claim.share, &claim.info);
    let since = info
        .since
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis();
    let mut text = String::from(HEAD);
    let (weight, capacity, token) = (
        share.weight(),
        share.capacity(),
        token.map_or(0, Token::get),
    );
    let _ = write!(text, "{weight} {capacity} {token} {since} {}", info.pid);
    for word in [&info.host, &info.program, &info.label] {
        text.push(' ');
        text.extend(utf8_percent_encode(word, PLAIN));
    }
    text.into_bytes()
}

/// `None` if it is not ours.
pub(super) fn read(data: &[u8]) -> Option<Record> {
    let mut fields = std::str::from_utf8(data)
        .ok()?
        .strip_prefix(HEAD)?
        .split(' ');
    let share =
        Share::from_parts(fields.next()?.parse().ok()?, fields.next()?.parse().ok()?).ok()?;
    let token = Token::new(fields.next()?.parse().ok()?);
    let since = SystemTime::UNIX_EPOCH + Duration::from_millis(fields.next()?.parse().ok()?);
    let pid = fields.next()?.parse().ok()?;
    let mut text = || {
        Some(
            percent_decode_str(fields.next()?)
                .decode_utf8()
                .ok()?
                .into_owned(),
        )
    };
    let (host, program, label) = (text()?, text()?, text()?);
    Some(Record {
        share,
        token,
        info: ClaimantInfo {
            host,
            pid,
            program,
            label,
            since,
        },
    })
}

/// What is known of somebody else's claim: what his library wrote, mostly an address, and since when it is there.
pub(super) fn foreign_info(data: &[u8], library: &str, created_millis: i64) -> ClaimantInfo {
    let text: String = String::from_utf8_lossy(data)
        .chars()
        .filter(|c| !c.is_control())
        .take(ClaimantInfo::HOST_MAX / 4)
        .collect();
    let since =
        SystemTime::UNIX_EPOCH + Duration::from_millis(created_millis.try_into().unwrap_or(0));
    ClaimantInfo {
        host: text,
        pid: 0,
        program: library.to_owned(),
        label: String::new(),
        since,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{ClaimId, Name};

    #[test]
    fn record_round_trips() {
        let mut info = ClaimantInfo::here("two words, and %ü").expect("a label");
        info.since = UNIX_EPOCH + Duration::from_millis(1_763_731_234_567);
        let name = Name::parse("a").expect("a name");
        let (id, lease) = (ClaimId::draw(), Duration::from_secs(30));
        let claim = Claim {
            name,
            id,
            share: Share::READER,
            lease,
            auto_renew: true,
            info: Arc::new(info.clone()),
        };
        let token = Token::new(7);
        assert_eq!(
            read(&write(&claim, token)),
            Some(Record {
                share: Share::READER,
                token,
                info
            })
        );
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
        assert_eq!(
            foreign_info(b"192.168.0.7\x1b[2J", "Curator", 0).host,
            "192.168.0.7[2J"
        );
    }
}
