//! How a claim is written in Redis, and how scripts answer. The layout is described in lua/queue.lua.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::stores::redis_client::{OTHER_VERSION, PLAIN, id_from};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{percent_decode_str, utf8_percent_encode};

use crate::{Claim, ClaimId, ClaimantInfo, Entry, Error, Name, Result, Share, Standing, Token};

pub(super) const PREFIX: &str = "leasehold:{";
/// A nonce that is none.
const NO_NONCE: &str = "-----------";
/// A server that is none: the claim is not judged by its connection.
const NO_SERVER: &str = "----------";
const ID_LEN: usize = 22;
const NONCE_LEN: usize = 11;
const GRACE_LEN: usize = 7;
const POSITION_LEN: usize = 8;
/// The version of the layout, and where it stands in a record. A client refuses a lock of another version.
const VERSION: &str = " v1";
const VERSION_AT: usize = 86;
/// Where the terms of a record begin.
const SHARE_AT: usize = VERSION_AT + VERSION.len() + 1;
/// How much longer than its lease a record lives, so that its token outlives it.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The key of a lock. No name has a brace in its key, so that all keys of a lock are in one slot of a cluster.
pub(super) fn key_of(name: &Name) -> String {
    format!("{PREFIX}{}}}", utf8_percent_encode(name.as_str(), PLAIN))
}

/// The pattern of the keys of names that begin with `prefix`.
pub(super) fn pattern_of(prefix: &str) -> String {
    // A percent sign and what is plain have no meaning in a pattern.
    format!("{PREFIX}{}*}}", utf8_percent_encode(prefix, PLAIN))
}

/// The name of a lock's key.
pub(super) fn name_of(key: &str) -> Option<Name> {
    let encoded = key.strip_prefix(PREFIX)?.strip_suffix('}')?;
    Name::parse(&percent_decode_str(encoded).decode_utf8().ok()?).ok()
}

/// Nonces: each of another value than all before it, of this client and of any other.
///
/// A nonce that came again would make two short absences one long one, and two holders. So they count on from a number
/// that the system has drawn: a generator in the process may be seeded alike in others, by its user or by a fork.
#[derive(Debug)]
pub(super) struct Nonces(AtomicU64);

impl Default for Nonces {
    fn default() -> Self {
        Self(AtomicU64::new(uuid::Uuid::new_v4().as_u64_pair().1))
    }
}

impl Nonces {
    pub(super) fn fresh(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0.fetch_add(1, Ordering::Relaxed).to_ne_bytes())
    }
}

/// Which connection vouches for a claim: the client's, the how manieth, to which server, and for how long once it is gone.
#[derive(Clone, Debug)]
pub(super) struct LivenessRef {
    pub(super) client: Arc<str>,
    pub(super) epoch: u32,
    /// `None` if the connection says nothing about the claim.
    pub(super) crash_check: Option<CrashCheck>,
}

#[derive(Clone, Debug)]
pub(super) struct CrashCheck {
    pub(super) server: Arc<str>,
    /// How long the holder counts on an answer: whoever takes its lock has waited for as long, whatever grace is his own.
    pub(super) grace: Duration,
}

impl LivenessRef {
    fn write(&self, text: &mut String) {
        let (server, grace) = self
            .crash_check
            .as_ref()
            .map_or((NO_SERVER, 0), |crash_check| {
                (&*crash_check.server, millis(crash_check.grace))
            });
        let _ = write!(text, "{}{:08}{server}{grace:07}", self.client, self.epoch);
    }
}

/// The record of a claim that is its lock's only holder, with the token it proposes.
pub(super) fn record(claim: &Claim, id: &str, proposal: u64, liveness_ref: &LivenessRef) -> String {
    let mut text = String::with_capacity(256);
    let _ = write!(text, "{proposal:016}H{id}{NO_NONCE}");
    liveness_ref.write(&mut text);
    let (share, info) = (claim.share, &claim.info);
    let since = info.since.duration_since(UNIX_EPOCH).map_or(0, millis);
    text.push_str(VERSION);
    let _ = write!(
        text,
        " {} {} {} {since} {}",
        share.weight(),
        share.capacity(),
        millis(claim.lease),
        info.pid
    );
    for word in [&info.host, &info.program, &info.label] {
        text.push(' ');
        text.extend(plain(word));
    }
    text
}

fn plain(text: &str) -> percent_encoding::PercentEncode<'_> {
    utf8_percent_encode(text, PLAIN)
}

/// What a renewal expects to stand behind the claims of records whose holders were not missed and have not moved.
pub(super) fn expected(liveness_ref: &LivenessRef) -> String {
    let mut text = String::with_capacity(47);
    text.push_str(NO_NONCE);
    liveness_ref.write(&mut text);
    text
}

/// How long a record lives, in milliseconds.
pub(super) fn life(claim: &Claim) -> u64 {
    millis(claim.lease + DAY)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The answer of enter.lua.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EnterReply {
    /// Where the claim stands.
    pub standing: Standing,
    /// The last token that was given for the name, as of this answer.
    pub last_token: u64,
    /// First of those who wait.
    pub is_next: bool,
    /// The position among those who wait, where 1 is the first; 0 if it does not wait.
    pub position: u32,
    /// How soon somebody's lease ends, where it was looked at.
    pub next_expiry: Option<Duration>,
    /// Holders whose connection is gone, with the nonce that says since when.
    pub absences: Vec<Absence>,
}

/// A holder whose connection is gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Absence {
    /// Its claim.
    pub claim: String,
    /// What notes this absence, and no other.
    pub nonce: String,
    /// How long it must last before the holder has stopped counting on its connection.
    pub grace: Duration,
}

impl EnterReply {
    /// `None` if this is not an answer about `id`.
    pub(super) fn parse(text: &str, id: &str) -> Option<Self> {
        let number: u64 = text.get(..16)?.parse().ok()?;
        if text.get(17..17 + ID_LEN)? != id {
            return None;
        }
        let state = text.as_bytes()[16];
        let standing = match state {
            b'H' => Standing::Held {
                token: Token::new(number)?,
            },
            b'N' | b'Q' => Standing::Queued {
                ahead: u32::try_from(number).ok()?,
            },
            b'G' => Standing::Gone,
            _ => return None,
        };
        let more = text.get(17 + ID_LEN..)?;
        let (last, position, more) = match state {
            b'H' => (number, 0, more),
            _ => (
                more.get(..16)?.parse().ok()?,
                more.get(16..24)?.parse().ok()?,
                &more[24..],
            ),
        };
        let next_expiry = more
            .get(..10)
            .map(|ms| ms.parse().map(Duration::from_millis))
            .transpose()
            .ok()?;
        let absences = more
            .get(10..)
            .unwrap_or_default()
            .as_bytes()
            .chunks_exact(ID_LEN + NONCE_LEN + GRACE_LEN);
        let absences = absences.map(|absence| Absence::parse(std::str::from_utf8(absence).ok()?));
        let absences = absences.collect::<Option<_>>()?;
        Some(Self {
            standing,
            last_token: last,
            is_next: state == b'N',
            position,
            next_expiry,
            absences,
        })
    }
}

impl Absence {
    fn parse(text: &str) -> Option<Self> {
        let (claim, rest) = text.split_at_checked(ID_LEN)?;
        let (nonce, grace) = rest.split_at_checked(NONCE_LEN)?;
        let grace = Duration::from_millis(grace.parse().ok()?);
        Some(Self {
            claim: claim.to_owned(),
            nonce: nonce.to_owned(),
            grace,
        })
    }
}

/// What is told to a client's inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Push {
    /// Granted.
    Held(Token),
    /// First of those who wait.
    Next,
    /// Not there any more.
    Gone,
}

impl Push {
    /// With the claim it concerns, and the key of a lock that was granted.
    pub(super) fn parse(text: &str) -> Option<(ClaimId, Self, &str)> {
        let (push, rest) = match text.as_bytes().first()? {
            b'H' => (
                Self::Held(Token::new(text.get(1..17)?.parse().ok()?)?),
                text.get(17..)?,
            ),
            b'N' => (Self::Next, text.get(1..)?),
            b'G' => (Self::Gone, text.get(1..)?),
            _ => return None,
        };
        let (id, key) = rest.split_at_checked(ID_LEN)?;
        Some((id_from(id)?, push, key))
    }
}

/// What renew.lua says of one claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Renewed {
    /// Held.
    Held,
    /// It waits, at this position.
    Queued {
        /// 1 is the first.
        position: u32,
        /// Whether a holder is absent.
        absence: AbsenceSeen,
    },
    /// Not there any more.
    Gone,
    /// A key of its lock cannot be used.
    Unusable,
}

/// What a renewal saw of a lock's holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AbsenceSeen {
    /// All are there.
    None,
    /// One is absent or its lease is over, and no client has noted it.
    New,
    /// One is absent, and another client has noted it.
    Noted,
}

/// Reads the reply of renew.lua for `count` claims, of which `first` is the first.
pub(super) fn parse_renewals(text: &str, first: &str, count: usize) -> Option<Vec<Renewed>> {
    let (letters, positions) = text.strip_prefix(first)?.split_at_checked(count)?;
    let mut positions = positions.as_bytes().chunks(POSITION_LEN);
    let renewed = letters.bytes().map(|letter| {
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
    });
    let renewed = renewed.collect::<Option<Vec<_>>>()?;
    positions.next().is_none().then_some(renewed)
}

/// A record as an entry of a line.
pub(super) fn entry(record: &str, ahead: u32) -> Result<Entry> {
    read(record, ahead)
        .unwrap_or_else(|| Err(Error::damaged("a record in this line is not of leasehold")))
}

fn read(record: &str, ahead: u32) -> Option<Result<Entry>> {
    let number: u64 = record.get(..16)?.parse().ok()?;
    let standing = match record.as_bytes().get(16)? {
        b'H' => Standing::Held {
            token: Token::new(number)?,
        },
        b'Q' => Standing::Queued { ahead },
        _ => return None,
    };
    let id = id_from(record.get(17..17 + ID_LEN)?)?;
    if record.get(VERSION_AT..VERSION_AT + VERSION.len())? != VERSION {
        let what = "the record of this lock has the layout of another version of leasehold";
        return Some(Err(Error::unsupported(what).help(OTHER_VERSION)));
    }
    let mut fields = record.get(SHARE_AT..)?.split(' ');
    let (weight, capacity) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let (_lease, since) = (fields.next()?, fields.next()?.parse().ok()?);
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
    let since = SystemTime::UNIX_EPOCH + Duration::from_millis(since);
    let info = ClaimantInfo {
        host,
        pid,
        program,
        label,
        since,
    };
    Some(Share::from_parts(weight, capacity).map(|share| Entry {
        id,
        share,
        standing,
        info,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::redis_client::id_text;

    fn claim(name: &str, label: &str) -> Claim {
        let (name, info) = (
            Name::parse(name).expect("a name"),
            Arc::new(ClaimantInfo::here(label).expect("a label")),
        );
        let lease = Duration::from_secs(30);
        Claim {
            name,
            id: ClaimId::draw(),
            share: Share::MUTEX,
            lease,
            info,
            auto_renew: true,
        }
    }

    fn liveness_ref(server: Option<&str>) -> LivenessRef {
        let crash_check = server.map(|server| CrashCheck {
            server: server.into(),
            grace: Duration::from_secs(3600),
        });
        LivenessRef {
            client: "0123456789a".into(),
            epoch: 7,
            crash_check,
        }
    }

    #[test]
    fn names_and_keys_round_trip() {
        for name in [
            "orders/42",
            "a}b{c",
            "{}x",
            "x{u}",
            "*[?]\\",
            "\0\r\n",
            "ü%7D",
            "a b",
        ] {
            let name = Name::parse(name).expect("a name");
            let key = key_of(&name);
            assert_eq!(name_of(&key), Some(name));
            assert_eq!(
                (key.matches('{').count(), key.matches('}').count()),
                (1, 1),
                "{key}"
            );
        }
        assert_eq!(name_of("leasehold:{a}:queue"), None);
    }

    #[test]
    fn longest_record_round_trips() {
        let mut claim = claim("a", &"ü ".repeat(21));
        let info = Arc::make_mut(&mut claim.info);
        info.host = "h".repeat(64);
        info.since = UNIX_EPOCH + Duration::from_millis(1_763_731_234_567);
        for server in [None, Some("0123456789")] {
            let text = record(
                &claim,
                &id_text(claim.id),
                1_795_268_260_247_958,
                &liveness_ref(server),
            );
            assert_eq!(text.as_bytes()[SHARE_AT - 1], b' ');
            assert!(text[39..].starts_with(&expected(&liveness_ref(server))));
            let entry = entry(&text, 0).expect("readable");
            assert_eq!(
                (entry.id, entry.share, &entry.info),
                (claim.id, claim.share, &*claim.info)
            );
            assert_eq!(entry.token().map(Token::get), Some(1_795_268_260_247_958));
        }
    }

    #[test]
    fn nonces_never_repeat() {
        let draw = || {
            fastrand::seed(7);
            let nonces = Nonces::default();
            (0..1_000)
                .map(|_| nonces.fresh())
                .collect::<std::collections::HashSet<_>>()
        };
        let (ours, theirs) = (draw(), draw());
        assert_eq!((ours.len(), ours.intersection(&theirs).count()), (1_000, 0));
        assert!(
            ours.iter()
                .all(|nonce| nonce.len() == NONCE_LEN && nonce != NO_NONCE)
        );
    }

    #[test]
    fn replies_about_other_claims_are_refused() {
        let (id, other) = (ClaimId::draw(), ClaimId::draw());
        let reply = |id| {
            format!(
                "0000000000000003N{}0000000000000007000000020000000250{}{}0005000",
                id_text(id),
                "c".repeat(22),
                "n".repeat(11)
            )
        };
        assert_eq!(EnterReply::parse(&reply(other), &id_text(id)), None);
        let parsed = EnterReply::parse(&reply(id), &id_text(id)).expect("about this one");
        assert_eq!(
            (parsed.standing, parsed.is_next),
            (Standing::Queued { ahead: 3 }, true)
        );
        assert_eq!((parsed.last_token, parsed.position), (7, 2));
        assert_eq!(parsed.next_expiry, Some(Duration::from_millis(250)));
        let grace = Duration::from_secs(5);
        assert_eq!(
            parsed.absences,
            [Absence {
                claim: "c".repeat(22),
                nonce: "n".repeat(11),
                grace
            }]
        );
    }

    #[test]
    fn pushes_are_parsed_or_ignored() {
        let id = ClaimId::draw();
        let token = Token::new(5).expect("above zero");
        let granted = format!("H0000000000000005{}leasehold:{{a}}", id_text(id));
        assert_eq!(
            Push::parse(&granted),
            Some((id, Push::Held(token), "leasehold:{a}"))
        );
        assert_eq!(
            Push::parse(&format!("G{}", id_text(id))),
            Some((id, Push::Gone, ""))
        );
        for odd in ["", "H", "N", "Nü", "H000000000000000ü", "Xabc"] {
            assert_eq!(Push::parse(odd), None);
        }
    }

    #[test]
    fn renewals_are_read_with_positions_of_waiters_only() {
        let waits = |position, absence| Renewed::Queued { position, absence };
        let expected = vec![
            Renewed::Held,
            waits(3, AbsenceSeen::New),
            Renewed::Gone,
            Renewed::Unusable,
            waits(12, AbsenceSeen::Noted),
            waits(1, AbsenceSeen::None),
        ];
        let positions = "000000030000001200000001";
        assert_eq!(
            parse_renewals(&format!("id1A0!aQ{positions}"), "id", 6),
            Some(expected)
        );
        for wrong in [
            "id1A0!aQ",
            "ix1",
            "id1A0!aQ0000000300000012",
            "id1?0000000",
            "id1110000000100000002",
        ] {
            assert_eq!(parse_renewals(wrong, "id", 6), None, "{wrong}");
        }
    }

    #[test]
    fn record_of_another_version_is_refused() {
        let claim = claim("a", "");
        let text =
            record(&claim, &id_text(claim.id), 7, &liveness_ref(None)).replacen(VERSION, " v2", 1);
        assert!(
            entry(&text, 0)
                .expect_err("of another version")
                .is_unsupported()
        );
    }
}
