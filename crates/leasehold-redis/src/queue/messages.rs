//! The messages between a client and a server: requests to enter, their replies, the replies to
//! renewals, and notifications.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::display::Base64Display;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::layout::{absence, grant, reply, request};
use super::record::{HolderRecord, LivenessRef};
use crate::client::{IdText, id_from, shows_replica};
use leasehold_core::internal::BootInstant;
use leasehold_core::store::{Claim, OnContention, Standing, draw_claim_id};
use leasehold_core::{ClaimId, Error, Token};

/// How long after it was sent the server may execute a request to enter. It is longer than the
/// silence after which the client closes a connection.
pub(super) const NOT_AFTER: Duration = Duration::from_secs(5);
/// After this time the server is certain to refuse the request, unless its clock was set back.
/// Whole seconds are compared, and clocks differ in rate.
pub(super) const LATE_MAX: Duration = Duration::from_secs(7);

/// What the server does with the claim of a request to enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EnterMode {
    /// Adds it to the queue.
    Queue,
    /// Adds it only if it is granted at once.
    TryNow,
    /// Extends the lease of a claim that is queued or held.
    Refresh,
    /// Finds a hold that is not renewed. Its lease stays as it is.
    Keep,
    /// Checks the holders. A waiter's lease stays as it is.
    Poll,
}

impl EnterMode {
    /// Returns the mode that adds a claim.
    pub(super) fn of(on_contention: OnContention) -> Self {
        if on_contention == OnContention::Fail {
            Self::TryNow
        } else {
            Self::Queue
        }
    }

    pub(super) fn adds_claim(self) -> bool {
        matches!(self, Self::Queue | Self::TryNow)
    }

    /// Returns the letter of the mode in a request.
    fn letter(self) -> char {
        match self {
            Self::Queue => 'Q',
            Self::TryNow => 'R',
            Self::Refresh => 'F',
            Self::Keep => 'K',
            Self::Poll => 'L',
        }
    }
}

/// A request to enter.
pub(super) struct EnterRequest<'a> {
    pub(super) claim: &'a Claim,
    pub(super) mode: EnterMode,
    /// The token that the fast path gives the claim; 0 disables the fast path.
    pub(super) proposal: u64,
    /// The highest token that this client has received for the name.
    pub(super) highest_token: u64,
    pub(super) liveness: LivenessRef,
    pub(super) nonce: Nonce,
    /// The absences that have lasted for their grace.
    pub(super) expired: Vec<Absence>,
}

impl EnterRequest<'_> {
    pub(super) fn record(&self) -> HolderRecord<'_> {
        HolderRecord {
            claim: self.claim,
            proposal: self.proposal,
            liveness: &self.liveness,
        }
    }
}

/// Writes the settings of the request.
impl fmt::Display for EnterRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.mode.letter())?;
        request::HINT.write_number(self.highest_token, f)?;
        write!(f, "{}", self.nonce)?;
        let mut expired = self.expired.iter();
        expired.try_for_each(|absence| write!(f, "{}{}", absence.claim, absence.nonce))
    }
}

/// The mark of one absence, in records and requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nonce(pub(super) u64);

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Base64Display::new(&self.0.to_ne_bytes(), &URL_SAFE_NO_PAD).fmt(f)
    }
}

/// Draws nonces that differ from all earlier ones, of this client and of any other.
///
/// A repeated nonce would turn two short absences into one long absence, and lead to two holders.
/// So nonces count up from a number that the system has drawn. A random generator in the process
/// may have the same seed as one in another process: after a fork, or because the user seeded it.
#[derive(Debug)]
pub(super) struct Nonces(AtomicU64);

impl Default for Nonces {
    fn default() -> Self {
        let drawn = u128::from_be_bytes(draw_claim_id().to_bytes());
        // The last bits are random in every version of an id.
        let last = drawn & u128::from(u64::MAX);
        Self(AtomicU64::new(u64::try_from(last).expect("it is masked")))
    }
}

impl Nonces {
    pub(super) fn fresh(&self) -> Nonce {
        Nonce(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// A request to leave: `H` of the claim's own client, `B` of another one, `K` of a watchdog.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaveArgument {
    pub(super) kind: char,
    pub(super) id: IdText,
}

impl fmt::Display for LeaveArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.kind, self.id)
    }
}

/// Returns the arguments of a script whose last one is the longest lease. It is left out if the
/// store does not wait after a failover.
pub(super) fn with_longest_lease<'a, 'p>(
    arguments: &'a [Part<'p>],
    longest_lease: Option<&str>,
) -> &'a [Part<'p>] {
    &arguments[..arguments.len() - usize::from(longest_lease.is_none())]
}

/// An argument that is written into a request.
pub(super) type Part<'a> = &'a (dyn fmt::Display + Sync);

/// When a request was sent, and the connections at that time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// When it was sent.
    pub(crate) at: BootInstant,
    /// The epoch of the background link that the request named.
    pub(crate) liveness_epoch: u32,
    /// The epoch of the caller link.
    pub(crate) caller_epoch: u32,
}

/// Whether the server may have executed a request with this error, or may execute it later.
///
/// A replica executes none. A request that a client did not send to one has the same error.
pub(super) fn may_add_later(error: &Error) -> bool {
    error.is_unavailable() && !shows_replica(error)
}

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

/// A holder without a connection, with its ids as the scripts encode them.
pub(crate) type Absence = leasehold_core::internal::Absence<String>;

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
        .map(|chunk| parse_absence(std::str::from_utf8(chunk).ok()?))
        .collect()
}

fn parse_absence(text: &str) -> Option<Absence> {
    let grace = absence::GRACE.read_number(text)?;
    Some(Absence {
        claim: absence::CLAIM.read(text)?.to_owned(),
        nonce: absence::NONCE.read(text)?.to_owned(),
        grace: Duration::from_millis(grace),
    })
}

/// A notification of a queue's change to the inbox of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Push {
    /// The claim is granted.
    Held(Token),
    /// The claim is the first waiter.
    Next,
    /// The claim has left the queue.
    Gone,
}

impl Push {
    /// Parses a notification. Returns it with its claim, and with the key of a granted lock.
    pub(super) fn parse(text: &str) -> Option<(ClaimId, Self, &str)> {
        let push = match grant::KIND.read(text)? {
            "H" => Self::Held(Token::new(grant::TOKEN.read_number(text)?)?),
            "N" => Self::Next,
            "G" => Self::Gone,
            _ => return None,
        };
        let rest = match push {
            Self::Held(_) => text.get(grant::CLAIM.start..)?,
            Self::Next | Self::Gone => text.get(grant::KIND.end()..)?,
        };
        let (id, key) = rest.split_at_checked(grant::CLAIM.len)?;
        Some((id_from(id)?, push, key))
    }
}

/// The reply to a renewal, for one claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Renewed {
    /// The claim is held.
    Held,
    /// The claim is queued.
    Queued {
        /// The position among the waiters, from 1.
        position: u32,
        /// Whether a holder is absent.
        absence: AbsenceSeen,
    },
    /// The claim is not in the queue.
    Gone,
    /// A key of the claim's lock cannot be used.
    Unusable,
}

/// The absences that a renewal has found among a lock's holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AbsenceSeen {
    /// All holders are present.
    None,
    /// A holder is absent or its lease is over, and its record has no nonce.
    New,
    /// A holder is absent, and another client has written a nonce into its record.
    Noted,
}

/// Parses the reply to a renewal of `count` claims, of which `first` is the first.
pub(super) fn parse_renewals(text: &str, first: &str, count: usize) -> Option<Vec<Renewed>> {
    let (letters, positions) = text.strip_prefix(first)?.split_at_checked(count)?;
    let mut positions = positions.as_bytes().chunks(reply::POSITION.len);
    let renewed = letters
        .bytes()
        .map(|letter| parse_renewal(letter, &mut positions))
        .collect::<Option<Vec<_>>>()?;
    positions.next().is_none().then_some(renewed)
}

fn parse_renewal<'a>(
    letter: u8,
    positions: &mut impl Iterator<Item = &'a [u8]>,
) -> Option<Renewed> {
    let absence = match letter {
        b'1' => return Some(Renewed::Held),
        b'0' => return Some(Renewed::Gone),
        b'!' => return Some(Renewed::Unusable),
        b'Q' => AbsenceSeen::None,
        b'A' => AbsenceSeen::New,
        b'a' => AbsenceSeen::Noted,
        _ => return None,
    };
    let position = std::str::from_utf8(positions.next()?).ok()?.parse().ok()?;
    Some(Renewed::Queued { position, absence })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::layout::record;
    use super::super::record::NO_NONCE;
    use super::*;
    use crate::client::id_text;
    use crate::test_inputs::altered_text;
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

    #[test]
    fn malformed_push_is_ignored() {
        let id = draw_claim_id();
        let token = Token::new(5).expect("above zero");
        let granted = format!("H0000000000000005{}leasehold:{{a}}", id_text(id));
        assert_eq!(
            Push::parse(&granted),
            Some((id, Push::Held(token), "leasehold:{a}"))
        );

        let gone = format!("G{}", id_text(id));
        assert_eq!(Push::parse(&gone), Some((id, Push::Gone, "")));
        for malformed in ["", "H", "N", "Nü", "H000000000000000ü", "Xabc"] {
            assert_eq!(Push::parse(malformed), None);
        }
    }

    #[test]
    fn renewals_have_positions_of_waiters_only() {
        let queued = |position, absence| Renewed::Queued { position, absence };
        let expected = vec![
            Renewed::Held,
            queued(3, AbsenceSeen::New),
            Renewed::Gone,
            Renewed::Unusable,
            queued(12, AbsenceSeen::Noted),
            queued(1, AbsenceSeen::None),
        ];
        let reply = "id1A0!aQ000000030000001200000001";
        assert_eq!(parse_renewals(reply, "id", 6), Some(expected));

        for malformed in [
            "id1A0!aQ",
            "ix1",
            "id1A0!aQ0000000300000012",
            "id1?0000000",
            "id1110000000100000002",
        ] {
            assert_eq!(parse_renewals(malformed, "id", 6), None, "{malformed}");
        }
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

        #[test]
        fn any_notification_is_parsed_or_ignored(
            text in altered_text(&[
                "H0000000000000005AAAAAAAAAAAAAAAAAAAAAAleasehold:{a}",
                "GAAAAAAAAAAAAAAAAAAAAAA",
            ]),
        ) {
            let _push = Push::parse(&text);
        }

        #[test]
        fn any_renewals_are_parsed_or_refused(
            text in altered_text(&["id1A0!aQ000000030000001200000001"]),
            count in 0..9_usize,
        ) {
            let _renewed = parse_renewals(&text, "id", count);
        }
    }

    /// Shows G-01.
    #[test]
    fn nonces_never_repeat() {
        let draw = || {
            fastrand::seed(7);
            let nonces = Nonces::default();
            (0..1_000)
                .map(|_| nonces.fresh().to_string())
                .collect::<HashSet<String>>()
        };
        let ours = draw();
        let theirs = draw();

        assert_eq!(ours.len(), 1_000);
        assert_eq!(ours.intersection(&theirs).count(), 0);
        for nonce in ours {
            assert_eq!(nonce.len(), record::NONCE.len);
            assert_ne!(nonce, NO_NONCE);
        }
    }
}
