//! The replies to requests that put a claim into a queue or find it there.

use std::time::Duration;

use super::layout::{absence, reply};
use leasehold_core::Token;
use leasehold_core::store::Standing;

/// The reply to a request to enter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EnterReply {
    /// The standing of the claim.
    pub(crate) standing: Standing,
    /// The last token of the name when the script ran.
    pub(crate) last_token: u64,
    /// Whether the claim is the first waiter.
    pub(crate) is_next: bool,
    /// The position among the waiters, from 1; 0 if the claim does not wait.
    pub(crate) position: u32,
    /// The time until a lease ends, if the script has read the leases.
    pub(crate) next_expiry: Option<Duration>,
    /// The holders without a connection.
    pub(crate) absences: Vec<Absence>,
    /// Who holds the lock, if the claim was refused.
    pub(crate) refused: Option<RefusedReply>,
}

/// Who has refused a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RefusedReply {
    /// How many claims are ahead.
    pub(crate) ahead: u32,
    /// The records of the first holders.
    pub(crate) holders: Vec<String>,
}

/// A holder without a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Absence {
    /// The holder's claim.
    pub(crate) claim: String,
    /// The nonce that marks this absence. Every absence has a different one.
    pub(crate) nonce: String,
    /// How long the absence must last before the holder stops trusting its hold.
    pub(crate) grace: Duration,
}

impl EnterReply {
    /// Parses a reply; `None` if it is malformed or not a reply about `id`.
    pub(super) fn parse(text: &str, id: &str) -> Option<Self> {
        if reply::CLAIM.read(text)? != id {
            return None;
        }

        let (text, holders) = match text.split_once('\n') {
            Some((text, holders)) => (text, Some(holders)),
            None => (text, None),
        };
        let number: u64 = reply::NUMBER.read_number(text)?;
        let state = reply::STANDING.read(text)?;
        let standing = match state {
            "H" => Standing::Held {
                token: Token::new(number)?,
            },
            "N" | "Q" => Standing::Queued {
                ahead: u32::try_from(number).ok()?,
            },
            "G" => Standing::Gone,
            _ => return None,
        };
        let is_held = state == "H";
        let last_token = if is_held {
            number
        } else {
            reply::LAST_TOKEN.read_number(text)?
        };
        let position = if is_held {
            0
        } else {
            reply::POSITION.read_number(text)?
        };
        let next_expiry = match reply::EXPIRY.read(text) {
            Some(ms) => Some(Duration::from_millis(ms.parse().ok()?)),
            None => None,
        };

        Some(Self {
            standing,
            last_token,
            is_next: state == "N",
            position,
            next_expiry,
            absences: parse_absences(reply::ABSENCES.read(text).unwrap_or_default())?,
            refused: match holders {
                Some(holders) => Some(RefusedReply {
                    ahead: u32::try_from(number).ok()?,
                    holders: holders.lines().map(str::to_owned).collect(),
                }),
                None => None,
            },
        })
    }
}

fn parse_absences(text: &str) -> Option<Vec<Absence>> {
    text.as_bytes()
        .chunks_exact(absence::GRACE.end())
        .map(|chunk| Absence::parse(std::str::from_utf8(chunk).ok()?))
        .collect()
}

impl Absence {
    fn parse(text: &str) -> Option<Self> {
        let grace = absence::GRACE.read_number(text)?;
        Some(Self {
            claim: absence::CLAIM.read(text)?.to_owned(),
            nonce: absence::NONCE.read(text)?.to_owned(),
            grace: Duration::from_millis(grace),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::record;
    use super::*;
    use crate::client::id_text;
    use crate::test_inputs::altered_text;
    use leasehold_core::store::draw_claim_id;
    use proptest::prelude::*;

    #[test]
    fn reply_about_another_claim_is_refused() {
        let id = draw_claim_id();
        let other = draw_claim_id();
        let reply = |id| {
            let id = id_text(id);
            let absence = format!("{}{}0005000", "c".repeat(22), "n".repeat(11));
            format!("0000000000000003N{id}0000000000000007000000020000000250{absence}")
        };
        assert_eq!(EnterReply::parse(&reply(other), &id_text(id)), None);

        let parsed = EnterReply::parse(&reply(id), &id_text(id)).expect("about this one");
        assert_eq!(parsed.standing, Standing::Queued { ahead: 3 });
        assert!(parsed.is_next);
        assert_eq!(parsed.last_token, 7);
        assert_eq!(parsed.position, 2);
        assert_eq!(parsed.next_expiry, Some(Duration::from_millis(250)));
        assert_eq!(
            parsed.absences,
            [Absence {
                claim: "c".repeat(22),
                nonce: "n".repeat(11),
                grace: Duration::from_secs(5),
            }]
        );
    }

    #[test]
    fn reply_to_a_holder_ends_with_its_claim() {
        let id = id_text(draw_claim_id());
        let text = format!("0000000000000009H{id}");
        assert_eq!(record::CLAIM.read(&text), Some(&*id));

        let parsed = EnterReply::parse(&text, &id).expect("held");
        assert_eq!(parsed.standing.token().map(Token::get), Some(9));
        assert_eq!(parsed.last_token, 9);
    }

    proptest! {
        #[test]
        fn any_reply_is_parsed_or_refused(
            text in altered_text(&[
                "0000000000000009HAAAAAAAAAAAAAAAAAAAAAA",
                "0000000000000003QAAAAAAAAAAAAAAAAAAAAAA000000000000000700000002",
                "0000000000000002GAAAAAAAAAAAAAAAAAAAAAA0000000000000007000000000000000250\nrecord",
                "0000000000000003NAAAAAAAAAAAAAAAAAAAAAA0000000000000007000000020000000250cccccccc\
                 ccccccccccccccnnnnnnnnnnn0005000",
            ]),
        ) {
            let id = reply::CLAIM.read(&text).unwrap_or_default();
            let _reply = EnterReply::parse(&text, id);
        }
    }
}
