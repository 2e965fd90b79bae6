//! The record of a claim: its encoding for the scripts, and its decoding for inspection.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{PercentEncode, percent_decode_str, utf8_percent_encode};

use super::layout::{ended, hold_end, record};
use crate::client::{
    ClusterNode, Link, OTHER_VERSION, PLAIN, State, StoreServers, id_from, id_text, protocol_error,
};
use leasehold_core::internal::{SeenHold, words};
use leasehold_core::store::{Claim, Standing, parse_words, replies, share_from_parts};
use leasehold_core::{EndedHold, Entry, Error, LockState, Name, Refused, Result, Token};

const PREFIX: &str = "leasehold:{";
const RECORD: &str = ":record";
/// The nonce of a holder that is present.
pub(super) const NO_NONCE: &str = "-----------";
/// The server of a claim without crash detection.
pub(super) const NO_SERVER: &str = "----------";
/// The version of the layout. A client refuses a lock of another version.
const VERSION: &str = " v1";
/// A record outlives its lease by this time, so that its token outlives it too.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The key of a lock.
///
/// | name | key | slot of a cluster |
/// |---|---|---|
/// | `a/b` | `leasehold:{a/b}` | that of `a/b` |
/// | `{a}/b` | `leasehold:{a}~/b~` | that of `a` |
///
/// The encoding has neither a brace nor a tilde. So the other keys of a lock are in the same slot,
/// and end with neither of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockKey<'a>(pub(super) &'a Name);

impl fmt::Display for LockKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.as_str();
        match tag_of(name) {
            Some((tag, rest)) => write!(f, "{PREFIX}{}}}~{}~", encoded(tag), encoded(rest)),
            None => write!(f, "{PREFIX}{}}}", encoded(name)),
        }
    }
}

/// Returns the pattern of the keys of names that begin with `prefix`. Other names may match too.
pub(super) fn pattern_of(prefix: &str) -> String {
    if prefix.is_empty() || prefix.starts_with('{') {
        return format!("{PREFIX}*");
    }
    // Neither a percent sign nor a plain character has a meaning in a pattern.
    format!("{PREFIX}{}*}}", encoded(prefix))
}

/// The key of the record of completed jobs beside a lock. It has a life of its own.
pub(super) fn record_key<K>(lock: K) -> PartKey<K> {
    PartKey { lock, part: RECORD }
}

/// Returns the name of the lock of a record's key.
pub(super) fn name_of_record(key: &str) -> Option<Name> {
    name_of(key.strip_suffix(RECORD)?)
}

/// Returns the name of a lock's key.
pub(super) fn name_of(key: &str) -> Option<Name> {
    let rest = key.strip_prefix(PREFIX)?;
    if let Some(encoded) = rest.strip_suffix('}') {
        return Name::parse(&decoded(encoded)?).ok();
    }

    let (tag, rest) = rest.strip_suffix('~')?.split_once("}~")?;
    Name::parse(&format!("{{{}}}{}", decoded(tag)?, decoded(rest)?)).ok()
}

/// Returns the text in the braces at the beginning of a name, and the rest of the name.
fn tag_of(name: &str) -> Option<(&str, &str)> {
    let (tag, rest) = name.strip_prefix('{')?.split_once('}')?;
    (!tag.is_empty()).then_some((tag, rest))
}

fn encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, PLAIN)
}

fn decoded(text: &str) -> Option<Cow<'_, str>> {
    percent_decode_str(text).decode_utf8().ok()
}

/// The keys of a lock.
///
/// A single server takes the first one, from which the scripts derive the others. A cluster takes
/// all of them. So while it moves their slot, it refuses the whole request unless all of them are
/// on one node, and no script stops halfway.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockKeys<K> {
    all: [PartKey<K>; 5],
    count: usize,
}

impl<K: Copy> LockKeys<K> {
    pub(super) fn new<S: ClusterNode>(lock: K, servers: &StoreServers<S>) -> Self {
        let parts = ["", ":claims", ":queue", ":holders", ":ended"];
        Self {
            all: parts.map(|part| PartKey { lock, part }),
            count: if servers.is_cluster() { parts.len() } else { 1 },
        }
    }
}

impl<K> Deref for LockKeys<K> {
    type Target = [PartKey<K>];

    fn deref(&self) -> &[PartKey<K>] {
        &self.all[..self.count]
    }
}

/// A key that begins with the key of its lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartKey<K> {
    lock: K,
    part: &'static str,
}

impl<K: fmt::Display> fmt::Display for PartKey<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.lock, self.part)
    }
}

/// Identifies the connection that proves a client alive: client, connection epoch, and server.
#[derive(Clone, Debug)]
pub(super) struct LivenessRef {
    pub(super) client: Arc<str>,
    pub(super) epoch: u32,
    /// `None` if the connection proves nothing about the claim.
    pub(super) crash_check: Option<CrashCheck>,
}

#[derive(Clone, Debug)]
pub(super) struct CrashCheck {
    pub(super) server: Arc<str>,
    /// How long the holder trusts its last reply. A contender waits for the holder's grace, not for
    /// its own, before it revokes the hold.
    pub(super) grace: Duration,
}

impl LivenessRef {
    /// Returns the present connection of a client's background link. It proves something about a
    /// claim with a crash grace.
    pub(super) fn of(background: &Link, client: &Arc<str>, grace: Option<Duration>) -> Self {
        background.with_state(|state| {
            let history = match state {
                State::Up(_, server) => server.clone(),
                _ => None,
            };
            let crash_check = history
                .zip(grace)
                .map(|(server, grace)| CrashCheck { server, grace });

            Self {
                client: Arc::clone(client),
                epoch: state.epoch(),
                crash_check,
            }
        })
    }
}

/// Writes the fields from the nonce to the grace in the record of a holder that is present and has
/// not reconnected.
impl fmt::Display for LivenessRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (server, grace) = match &self.crash_check {
            Some(check) => (&*check.server, millis(check.grace)),
            None => (NO_SERVER, 0),
        };

        f.write_str(NO_NONCE)?;
        f.write_str(&self.client)?;
        record::EPOCH.write_number(u64::from(self.epoch), f)?;
        f.write_str(server)?;
        record::GRACE.write_number(grace, f)
    }
}

/// The record of a claim that is the only holder of its lock, with the proposed token.
#[derive(Clone, Copy, Debug)]
pub(super) struct HolderRecord<'a> {
    pub(super) claim: &'a Claim,
    pub(super) proposal: u64,
    pub(super) liveness: &'a LivenessRef,
}

impl fmt::Display for HolderRecord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let claim = self.claim;
        record::TOKEN.write_number(self.proposal, f)?;
        write!(f, "H{}{}{VERSION}", id_text(claim.id), self.liveness)?;

        let weight = claim.share.weight();
        let capacity = claim.share.capacity();
        write!(f, " {weight} {capacity} {}", millis(claim.lease))?;
        write!(f, "{}", words(&claim.info))?;
        if claim.reserved > 0 {
            write!(f, " +{}", claim.reserved)?;
        }
        Ok(())
    }
}

/// Returns how long a record lives, in milliseconds.
pub(super) fn life(claim: &Claim) -> u64 {
    millis(claim.lease + DAY)
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Decodes a reply of the inspecting script.
pub(super) fn lock_state(name: Name, texts: &[String]) -> Result<LockState> {
    let [last_token, ended, records @ ..] = texts else {
        return Err(protocol_error());
    };

    let mut lock_state = replies::lock_state(name);
    lock_state.last_token = last_token.parse().ok().and_then(Token::new);
    lock_state.ended = ended_hold(ended);
    for (ahead, record) in (0..).zip(records) {
        lock_state.entries.push(inspected(record, ahead)?);
    }
    Ok(lock_state)
}

/// Decodes a claim of that reply: whether its client is connected, and its record.
fn inspected(text: &str, ahead: u32) -> Result<Entry> {
    let mut record = text.chars();
    let connected = match record.next() {
        Some('+') => Some(true),
        Some('-') => Some(false),
        _ => None,
    };
    let mut entry = entry(record.as_str(), ahead)?;
    entry.connected = connected;
    Ok(entry)
}

/// Decodes a claim of that reply as a hold that is bound to the connection of its client. Records of
/// another version are left out: nothing is told about them.
pub(super) fn bound_hold(text: &str) -> Option<SeenHold> {
    let text = text.strip_prefix(['+', '-'])?;
    if record::MODE.read(text)? != "H" || record::VERSION.read(text)? != VERSION {
        return None;
    }
    Some(SeenHold {
        claim: id_from(record::CLAIM.read(text)?)?,
        token: Token::new(record::TOKEN.read_number(text)?)?,
        client: record::CLIENT.read(text)?.to_owned(),
        link: record::CLIENT.to(record::GRACE).read(text)?.to_owned(),
    })
}

/// Returns the client of a record.
pub(super) fn client_of(record: &str) -> Option<&str> {
    record::CLIENT.read(record)
}

/// The request to revoke a hold whose process has ended, as the client of a claim has seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedRequest<'a> {
    pub(super) seen: &'a SeenHold,
    pub(super) seen_by: &'a Claim,
}

impl fmt::Display for EndedRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = self.seen;
        write!(f, "D{}", id_text(seen.claim))?;
        ended::TOKEN.write_number(seen.token.get(), f)?;
        write!(f, "{}{}", seen.link, words(&self.seen_by.info))
    }
}

/// Decodes how the last hold has ended; `None` if nothing is known, or not to this version.
fn ended_hold(text: &str) -> Option<EndedHold> {
    let reason = hold_end::REASON.read(text)?;
    let reason = replies::end_reason(reason, hold_end::SEEN_BY.read(text)?)?;
    let token = Token::new(hold_end::TOKEN.read_number(text)?)?;
    let followed_by = Token::new(hold_end::FOLLOWED_BY.read_number(text)?)?;
    Some(replies::ended_hold(token, reason, followed_by))
}

/// Decodes the holders in a reply to a claim that was refused. Records of another version are left
/// out: they do not change the refusal.
pub(super) fn refused(name: &Name, ahead: u32, holders: &[String]) -> Refused {
    let mut lock_state = replies::lock_state(name.clone());
    let holders = holders.iter().map(|record| entry(record, 0));
    lock_state.entries = holders.filter_map(Result::ok).collect();
    let mut refused = replies::refused(lock_state, None);
    refused.ahead = Some(ahead).filter(|ahead| *ahead > 0);
    refused
}

/// Decodes a record as an entry of a queue.
fn entry(text: &str, ahead: u32) -> Result<Entry> {
    decode(text, ahead).unwrap_or_else(|| {
        Err(Error::damaged(
            "the queue has a record that leasehold did not write",
        ))
    })
}

fn decode(text: &str, ahead: u32) -> Option<Result<Entry>> {
    let standing = match record::MODE.read(text)? {
        "H" => Standing::Held {
            token: Token::new(record::TOKEN.read_number(text)?)?,
        },
        "Q" => Standing::Queued { ahead },
        _ => return None,
    };
    let id = id_from(record::CLAIM.read(text)?)?;
    if record::VERSION.read(text)? != VERSION {
        let what = "the record of this lock has the layout of another version of leasehold";
        return Some(Err(Error::unsupported(what).help(OTHER_VERSION)));
    }

    let mut words = record::WORDS.read(text)?.strip_prefix(' ')?.split(' ');
    let weight = words.next()?.parse().ok()?;
    let capacity = words.next()?.parse().ok()?;
    let _lease = words.next()?;
    let info = parse_words(&mut words)?;
    let reserved = match words.next() {
        Some(word) => word.strip_prefix('+')?.parse().ok()?,
        None => 0,
    };

    let share = share_from_parts(weight, capacity);
    Some(share.map(|share| {
        let mut entry = replies::entry(id, share, standing, info);
        entry.reserved = reserved;
        entry
    }))
}

#[cfg(test)]
mod tests {
    use crate::test_inputs::altered_text;
    use proptest::prelude::*;
    use std::collections::HashSet;
    use std::time::UNIX_EPOCH;

    use super::*;
    use leasehold_core::store::Share;
    use leasehold_core::store::claimant_here;

    const TOKEN: u64 = 1_795_268_260_247_958;

    fn claim(label: &str) -> Claim {
        let info = claimant_here(label).expect("a label");
        Claim::new(
            Name::parse("a").expect("a name"),
            Share::MUTEX,
            Arc::new(info),
        )
    }

    fn liveness(server: Option<&str>) -> LivenessRef {
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

    fn holder_record(claim: &Claim, proposal: u64, liveness: &LivenessRef) -> String {
        let record = HolderRecord {
            claim,
            proposal,
            liveness,
        };
        record.to_string()
    }

    #[test]
    fn pattern_matches_the_keys_of_all_names_with_a_prefix() {
        for (prefix, pattern) in [("", "*"), ("{x", "*"), ("a", "a*}")] {
            assert_eq!(pattern_of(prefix), format!("{PREFIX}{pattern}"));
        }
    }

    #[test]
    fn refusal_without_claims_ahead_names_no_number() {
        let name = Name::parse("a").expect("a name");
        assert_eq!(refused(&name, 0, &[]).ahead, None);
        assert_eq!(refused(&name, 1, &[]).ahead, Some(1));
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
            let key = LockKey(&name).to_string();
            assert_eq!(name_of(&key), Some(name));
            assert_eq!(key.matches('{').count(), 1, "{key}");
            assert_eq!(key.matches('}').count(), 1, "{key}");
        }
        assert_eq!(name_of("leasehold:{a}:queue"), None);
    }

    /// All names of up to five characters that have a meaning in keys.
    ///
    /// Shows G-17.
    #[test]
    fn names_with_braces_have_keys_of_their_own() {
        let mut names = vec![String::new()];
        for length in 0..5 {
            let longest: Vec<String> = names
                .iter()
                .filter(|name| name.len() == length)
                .cloned()
                .collect();
            for name in longest {
                names.extend("{}~:a%".chars().map(|c| format!("{name}{c}")));
            }
        }

        let mut keys = HashSet::new();
        for name in names.iter().filter(|name| !name.is_empty()) {
            let name = Name::parse(name).expect("a name");
            let key = LockKey(&name).to_string();
            assert_eq!(name_of(&key), Some(name), "{key}");
            for part in [":claims", ":queue", ":holders", ":since"] {
                let part = format!("{key}{part}");
                assert_eq!(name_of(&part), None, "{part}");
                assert!(keys.insert(part), "two locks have a part {key}");
            }
            assert!(key.starts_with(PREFIX));
            assert!(keys.insert(key.clone()), "two names have the key {key}");
        }
    }

    /// Shows G-17.
    #[test]
    fn names_without_a_tag_keep_their_keys() {
        for (name, key) in [
            ("a/b:c@d-e_f.g", "leasehold:{a/b:c@d-e_f.g}"),
            ("x{a}", "leasehold:{x%7Ba%7D}"),
            ("{}a", "leasehold:{%7B%7Da}"),
            ("{a", "leasehold:{%7Ba}"),
            ("{a}", "leasehold:{a}~~"),
            ("{a}/b", "leasehold:{a}~/b~"),
            ("{a}{b}~", "leasehold:{a}~%7Bb%7D%7E~"),
        ] {
            let name = Name::parse(name).expect("a name");
            assert_eq!(LockKey(&name).to_string(), key);
        }
    }

    #[test]
    fn longest_record_round_trips() {
        let mut claim = claim(&"ü ".repeat(21));
        let info = Arc::make_mut(&mut claim.info);
        info.host = "h".repeat(64).into();
        info.since = UNIX_EPOCH + Duration::from_millis(1_763_731_234_567);

        for server in [None, Some("0123456789")] {
            let liveness = liveness(server);
            let text = holder_record(&claim, TOKEN, &liveness);
            assert_eq!(
                record::NONCE.to(record::GRACE).read(&text),
                Some(&*liveness.to_string())
            );

            let entry = entry(&text, 0).expect("readable");
            assert_eq!(entry.id, claim.id);
            assert_eq!(entry.share, claim.share);
            assert_eq!(&entry.info, &*claim.info);
            assert_eq!(entry.token().map(Token::get), Some(TOKEN));
        }
    }

    /// Shows G-23.
    #[test]
    fn record_of_another_version_is_refused() {
        let claim = claim("");
        let text = holder_record(&claim, 7, &liveness(None));
        let other = text.replacen(VERSION, " v2", 1);
        assert!(entry(&other, 0).expect_err("v2").is_unsupported());
    }

    proptest! {
        #[test]
        fn any_record_is_decoded_or_refused(
            text in altered_text(&[
                "1795268260247958HAAAAAAAAAAAAAAAAAAAAAA-----------0123456789a00000007012345678900\
                 10000 v1 1 1 30000 1763731234567 42 node-1 worker a%2Fb%20c",
                "0000000000000000QAAAAAAAAAAAAAAAAAAAAAA-----------0123456789a00000007----------00\
                 00000 v1 1 4 30000 18446744073709551615 42 node-1 worker label +3",
            ]),
            key in altered_text(&["leasehold:{a%2Fb%7D}", "leasehold:{a}~/b~"]),
        ) {
            let _entry = entry(&text, 0);
            let _name = name_of(&key);
        }
    }
}
