//! The replies and messages of masters, and the parts that all records have.

use std::fmt::Write as _;
use std::time::Duration;

use crate::client::id_from;
use leasehold_core::store::{Claim, Share, claim_id_from_bytes, parse_words, write_words};
use leasehold_core::{ClaimId, ClaimantInfo, Token};

pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The key that a master has until it is emptied.
pub(super) const INCARNATION_KEY: &str = "leasehold:redlock:mark";
pub(crate) const TOKEN_LEN: usize = 19;
pub(crate) const ID_LEN: usize = 22;
pub(crate) const CLIENT_LEN: usize = 11;

/// Where the parts of a reply to a vote begin; `redlock/lua/vote.lua` describes the layout.
mod reply_at {
    use super::{ID_LEN, TOKEN_LEN};

    pub(super) const OUTCOME: usize = 0;
    pub(super) const INCARNATION: usize = 1;
    pub(super) const LAST_TOKEN: usize = 2;
    pub(super) const HELD_TOKEN: usize = LAST_TOKEN + TOKEN_LEN;
    pub(super) const NUMBER: usize = HELD_TOKEN + TOKEN_LEN;
    pub(super) const NUMBER_LEN: usize = 10;
    pub(super) const END: usize = NUMBER + NUMBER_LEN + ID_LEN;
}

/// A master's reply to a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum VoteOutcome {
    /// The claim has this vote.
    Granted,
    /// Another claim has it, for this token.
    Held(u64),
    /// It is free, or the claim's own, but the token is not above this one.
    Stale(u64),
}

/// A master's reply to a vote request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VoteReply {
    pub(super) outcome: VoteOutcome,
    /// The highest token that this master knows for the lock.
    pub(super) last_token: u64,
    /// Whether the master still has the incarnation that the connection found.
    pub(super) same_incarnation: bool,
    /// How long the lease of another holder lasts; zero if it has no end.
    pub(super) remaining: Duration,
    /// The renewal that restored this vote; 0 for a vote that was never lost.
    pub(super) renewal: u32,
    /// The record of another holder; empty if the reply has none.
    pub(super) holder: String,
}

impl VoteReply {
    /// Returns `None` if the text is not a reply about the claim `id`.
    pub(super) fn parse(text: &str, id: &str) -> Option<Self> {
        let (text, holder) = text.split_at_checked(reply_at::END)?;
        if !text.is_ascii() || !text.ends_with(id) {
            return None;
        }

        let number = |at: usize, len: usize| text[at..at + len].parse::<u64>().ok();
        let last_token = number(reply_at::LAST_TOKEN, TOKEN_LEN)?;
        let held_token = number(reply_at::HELD_TOKEN, TOKEN_LEN)?;
        let number = number(reply_at::NUMBER, reply_at::NUMBER_LEN)?;

        let mut reply = Self {
            outcome: VoteOutcome::Granted,
            last_token,
            same_incarnation: text.as_bytes()[reply_at::INCARNATION] == b'Y',
            remaining: Duration::from_millis(number),
            renewal: 0,
            holder: holder.to_owned(),
        };
        match text.as_bytes()[reply_at::OUTCOME] {
            b'G' => {
                reply.remaining = Duration::ZERO;
                reply.renewal = u32::try_from(number).ok()?;
            }
            b'H' => reply.outcome = VoteOutcome::Held(held_token),
            b'L' => reply.outcome = VoteOutcome::Stale(last_token),
            _ => return None,
        }
        Some(reply)
    }
}

/// A message that a master publishes to a client's inbox.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Push<'a> {
    /// The lock of this key was released.
    Free(&'a str),
    /// Another client broke the hold of this claim.
    Gone(ClaimId),
}

impl<'a> Push<'a> {
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        match text.as_bytes().first()? {
            b'F' => Some(Self::Free(&text[1..])),
            b'G' => id_from(text.get(1..)?).map(Self::Gone),
            _ => None,
        }
    }
}

/// What one master knows of a lock.
#[derive(Clone, Debug)]
pub(crate) struct Inspected {
    pub(crate) last_token: u64,
    pub(crate) holder: Option<Holder>,
}

/// The claim that has the vote of a master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) id: ClaimId,
    pub(crate) token: u64,
    pub(crate) share: Share,
    pub(crate) info: ClaimantInfo,
    pub(crate) remaining: Duration,
}

/// Returns the id and the token that stand for a holder of another library: both are parts of the
/// hash of its value.
///
/// It is not a fencing token, but it differs from those of other holders.
pub(crate) fn hashed(value: &[u8]) -> (ClaimId, Token) {
    let hash = sha1_smol::Sha1::from(value).digest().bytes();
    let (id, _) = hash
        .split_first_chunk::<16>()
        .expect("a digest has twenty bytes");

    let number = u64::from(u32::from_be_bytes([id[0], id[1], id[2], id[3]]));
    let token = Token::new(number.max(1)).expect("it is above zero");
    (claim_id_from_bytes(*id), token)
}

/// Appends the share, the lease and the claimant, with which every record ends.
pub(crate) fn write_info(record: &mut String, claim: &Claim) {
    // A mutex and the writer of a reader-writer lock both take the whole lock.
    let kind = if claim.share == Share::WRITER {
        'W'
    } else {
        'M'
    };
    // Writing to a string does not fail.
    let _ = write!(record, " {kind} {}", millis(claim.lease));
    write_words(&claim.info, record);
}

/// Reads what [`write_info`] has written.
pub(crate) fn parse_info(text: &str) -> Option<(Share, ClaimantInfo)> {
    let mut words = text.strip_prefix(' ')?.split(' ');
    let share = if words.next()? == "W" {
        Share::WRITER
    } else {
        Share::MUTEX
    };
    let _lease = words.next()?;
    Some((share, parse_words(&mut words)?))
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_inputs::altered_text;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_of_a_master_is_parsed_or_refused(
            text in altered_text(&[
                "GY000000000000000000700000000000000000000000000000AAAAAAAAAAAAAAAAAAAAAA",
                "LN000000000000000000700000000000000000050000001500AAAAAAAAAAAAAAAAAAAAAA",
                "Fleasehold:redlock:{a}",
                " W 30000 1763731234567 42 node worker label +3",
            ]),
        ) {
            let start = text.len().checked_sub(ID_LEN);
            let id = start.and_then(|start| text.get(start..));
            let _reply = VoteReply::parse(&text, id.unwrap_or_default());
            let _push = Push::parse(&text);
            let _info = parse_info(&text);
        }
    }
}
