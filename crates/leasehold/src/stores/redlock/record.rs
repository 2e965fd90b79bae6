//! How a claim is written on a master, and what scripts answer. The layouts are described in `lua/redlock/vote.lua` and
//! `plain_vote.lua`.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{percent_decode_str, utf8_percent_encode};

use super::scripts;
use super::voting::VoteOutcome;
use crate::stores::redis_client::Script;
use crate::stores::redis_client::{PLAIN, id_from, id_text};
use crate::{Claim, ClaimId, ClaimantInfo, Error, Name, Result, Share};

/// What a lock looks like on a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WireFormat {
    /// Of our own, where a master remembers the last token.
    Fenced,
    /// `SET NX PX` of a random value, as everybody else does it.
    Plain {
        /// Whether tokens are counted in a key beside it.
        tokens: bool,
    },
}

pub(super) const INCARNATION_KEY: &str = "leasehold:redlock:mark";
/// From when on the age of a mark counts that is later than its server's clock.
pub(super) const SINCE: &str = "leasehold:redlock:mark:since";
const FENCED_PREFIX: &str = "leasehold:redlock:{";
const PLAIN_PREFIX: &str = "leasehold:plain:{";
const OWN_PREFIX: &str = "leasehold:";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const TOKEN_LEN: usize = 19;
const ID_LEN: usize = 22;
pub(super) const CLIENT_LEN: usize = 11;

/// The keys of one lock.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    pub(super) lock: String,
    pub(super) waits: String,
    pub(super) tokens: String,
}

impl WireFormat {
    pub(super) fn keys(self, name: &Name) -> Result<Keys> {
        let encoded = utf8_percent_encode(name.as_str(), PLAIN);
        match self {
            Self::Fenced => {
                let lock = format!("{FENCED_PREFIX}{encoded}}}");
                Ok(Keys { waits: format!("{lock}:waits"), tokens: String::new(), lock })
            }
            Self::Plain { .. } if name.as_str().starts_with(OWN_PREFIX) => Err(Error::invalid(
                "here a name is a key as it stands, and keys that begin with leasehold: are leasehold's own",
            )
            .help("use another name")),
            Self::Plain { .. } => {
                let (waits, tokens) = (format!("{PLAIN_PREFIX}{encoded}}}:waits"), format!("{PLAIN_PREFIX}{encoded}}}:token"));
                Ok(Keys { lock: name.as_str().to_owned(), waits, tokens })
            }
        }
    }

    /// The pattern of the keys of names that begin with `prefix`.
    pub(super) fn pattern(self, prefix: &str) -> String {
        if self == Self::Fenced {
            // A percent sign and what is plain have no meaning in a pattern.
            return format!("{FENCED_PREFIX}{}*}}", utf8_percent_encode(prefix, PLAIN));
        }
        let mut pattern = String::with_capacity(prefix.len() + 1);
        for c in prefix.chars() {
            if "*?[]^-\\".contains(c) {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern + "*"
    }

    /// The name of a lock's key.
    pub(super) fn name_of(self, key: &str) -> Option<Name> {
        if self == Self::Fenced {
            let encoded = key.strip_prefix(FENCED_PREFIX)?.strip_suffix('}')?;
            return Name::parse(&percent_decode_str(encoded).decode_utf8().ok()?).ok();
        }
        Name::parse(key)
            .ok()
            .filter(|name| !name.as_str().starts_with(OWN_PREFIX))
    }

    pub(super) fn vote(self) -> &'static Script {
        if self == Self::Fenced {
            &scripts::VOTE
        } else {
            &scripts::PLAIN
        }
    }

    pub(super) fn leave(self) -> &'static Script {
        if self == Self::Fenced {
            &scripts::VOTE_LEAVE
        } else {
            &scripts::PLAIN_LEAVE
        }
    }

    pub(super) fn inspect(self) -> &'static Script {
        if self == Self::Fenced {
            &scripts::VOTE_LOOK
        } else {
            &scripts::PLAIN_LOOK
        }
    }

    pub(super) fn list(self) -> &'static Script {
        if self == Self::Fenced {
            &scripts::VOTE_NAMES
        } else {
            &scripts::PLAIN_NAMES
        }
    }

    /// The record of a claim that holds, or the value of the foreign format.
    pub(super) fn record(self, claim: &Claim, token: u64, client: &str) -> String {
        let mut text = String::with_capacity(256);
        let id = id_text(claim.id);
        // Writing to a string does not fail.
        let _ = match self {
            Self::Fenced => write!(text, "{token:019}H{token:019}{id}{client}"),
            Self::Plain { .. } => write!(text, "{OWN_PREFIX}{client}{id}{token:019}"),
        };
        let info = &claim.info;
        let since = info.since.duration_since(UNIX_EPOCH).map_or(0, millis);
        let _ = write!(
            text,
            " {} {} {since} {}",
            kind(claim.share),
            millis(claim.lease),
            info.pid
        );
        for word in [&info.host, &info.program, &info.label] {
            text.push(' ');
            text.extend(utf8_percent_encode(word, PLAIN));
        }
        text
    }

    /// How long the record lives, in ms.
    pub(super) fn life(self, lease: Duration) -> u64 {
        if self == Self::Fenced {
            millis(lease + DAY)
        } else {
            millis(lease)
        }
    }

    /// For how many ms tokens are remembered; empty if they are not counted.
    pub(super) fn memory(self, lease: Duration) -> String {
        match self {
            Self::Plain { tokens: true } => millis(lease + DAY).to_string(),
            Self::Fenced | Self::Plain { .. } => String::new(),
        }
    }

    /// Who holds, as a script has looked.
    pub(super) fn read(self, record: &[u8], left_ms: u64) -> Result<Inspected> {
        if record.is_empty() {
            return Ok(Inspected {
                last_token: 0,
                holder: None,
            });
        }
        let remaining = Duration::from_millis(left_ms);
        let seen = match self {
            Self::Fenced => std::str::from_utf8(record)
                .ok()
                .and_then(|text| fenced(text, remaining)),
            Self::Plain { .. } => Some(plain(record, remaining)),
        };
        seen.ok_or_else(|| Error::damaged("the record of this lock is not of leasehold"))
    }
}

/// Marks a value by the renewal that may put it where none is.
pub(super) fn mark_renewal(value: &mut String, number: u32) {
    // Words have no plus sign, nobody reads beyond the last, and writing to a string does not fail.
    let _ = write!(value, " +{number}");
}

/// A mutex, or the writer of a reader-writer lock: both take all.
fn kind(share: Share) -> char {
    if share == Share::WRITER { 'W' } else { 'M' }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A master's answer to a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VoteReply {
    pub(super) outcome: VoteOutcome,
    /// The highest token this master knows of the lock.
    pub(super) last_token: u64,
    /// Whether the master's mark is the one that was expected.
    pub(super) has_incarnation: bool,
    /// How long another's lease goes on; zero if it has no end.
    pub(super) remaining: Duration,
    /// The renewal by which the claim was given this vote again, in a format in which a master remembers nothing.
    pub(super) renewal: u32,
}

impl VoteReply {
    /// `None` if this is not an answer about `id`.
    pub(super) fn parse(text: &str, id: &str) -> Option<Self> {
        if text.len() != 2 + 2 * TOKEN_LEN + 10 + ID_LEN || !text.is_ascii() || !text.ends_with(id)
        {
            return None;
        }
        let number = |at: usize, len: usize| text[at..at + len].parse::<u64>().ok();
        let (last, held) = (number(2, TOKEN_LEN)?, number(2 + TOKEN_LEN, TOKEN_LEN)?);
        let outcome = match text.as_bytes()[0] {
            b'G' => VoteOutcome::Granted,
            b'H' => VoteOutcome::Held(held),
            b'L' => VoteOutcome::Stale(last),
            _ => return None,
        };
        let number = number(2 + 2 * TOKEN_LEN, 10)?;
        let (remaining, renewal) = match outcome {
            VoteOutcome::Granted => (0, u32::try_from(number).ok()?),
            VoteOutcome::Held(_) | VoteOutcome::Stale(_) => (number, 0),
        };
        let (marked, remaining) = (text.as_bytes()[1] == b'Y', Duration::from_millis(remaining));
        Some(Self {
            outcome,
            last_token: last,
            has_incarnation: marked,
            remaining,
            renewal,
        })
    }
}

/// What is told to a client's inbox.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Push<'a> {
    /// The lock of this key was given back.
    Free(&'a str),
    /// This claim was broken.
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

/// What a master knows of a lock.
#[derive(Clone, Debug)]
pub(super) struct Inspected {
    pub(super) last_token: u64,
    pub(super) holder: Option<Holder>,
}

/// Who has a master's vote.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) id: ClaimId,
    pub(super) token: u64,
    pub(super) share: Share,
    pub(super) info: ClaimantInfo,
    pub(super) remaining: Duration,
}

fn fenced(text: &str, remaining: Duration) -> Option<Inspected> {
    let last = text.get(..TOKEN_LEN)?.parse().ok()?;
    let (state, rest) = text.get(TOKEN_LEN..)?.split_at_checked(1)?;
    if state == "~" || remaining.is_zero() {
        return Some(Inspected {
            last_token: last,
            holder: None,
        });
    }
    let (token, rest) = rest.split_at_checked(TOKEN_LEN)?;
    let (id, rest) = rest.split_at_checked(ID_LEN)?;
    let (share, info) = parse_info(rest.get(CLIENT_LEN..)?)?;
    let (id, token) = (id_from(id)?, token.parse().ok()?);
    Some(Inspected {
        last_token: last,
        holder: Some(Holder {
            id,
            token,
            share,
            info,
            remaining,
        }),
    })
}

/// A value that is not ours is somebody's too.
fn plain(value: &[u8], remaining: Duration) -> Inspected {
    let ours = std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.strip_prefix(OWN_PREFIX))
        .and_then(|rest| {
            let (id, rest) = rest.get(CLIENT_LEN..)?.split_at_checked(ID_LEN)?;
            let (token, rest) = rest.split_at_checked(TOKEN_LEN)?;
            let (share, info) = parse_info(rest)?;
            Some(Holder {
                id: id_from(id)?,
                token: token.parse().ok()?,
                share,
                info,
                remaining,
            })
        });
    let holder = ours.unwrap_or_else(|| external_info(value, remaining));
    Inspected {
        last_token: holder.token,
        holder: Some(holder),
    }
}

/// Known by what its value hashes to; so is its number, which is no token but tells it from others.
fn external_info(value: &[u8], remaining: Duration) -> Holder {
    let mut sha = sha1_smol::Sha1::new();
    sha.update(value);
    let bytes = sha.digest().bytes();
    let (id, _) = bytes
        .split_first_chunk::<16>()
        .expect("a digest has twenty bytes");
    let number = u64::from(u32::from_be_bytes([id[0], id[1], id[2], id[3]])).max(1);
    let info = ClaimantInfo {
        host: String::new(),
        pid: 0,
        program: "another library".to_owned(),
        label: format!("value {}", printable(value)),
        since: SystemTime::UNIX_EPOCH,
    };
    Holder {
        id: ClaimId::from_bytes(*id),
        token: number,
        share: Share::MUTEX,
        info,
        remaining,
    }
}

/// The beginning only: whoever knows the whole value can release the lock.
fn printable(value: &[u8]) -> String {
    let text = std::str::from_utf8(value)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()));
    let text = text.map_or_else(|| URL_SAFE_NO_PAD.encode(value), str::to_owned);
    let end = text.len().min(8);
    format!("{}…", &text[..end])
}

fn parse_info(text: &str) -> Option<(Share, ClaimantInfo)> {
    let mut fields = text.strip_prefix(' ')?.split(' ');
    let share = if fields.next()? == "W" {
        Share::WRITER
    } else {
        Share::MUTEX
    };
    let (_lease, since, pid) = (
        fields.next()?,
        fields.next()?.parse().ok()?,
        fields.next()?.parse().ok()?,
    );
    let mut word = || {
        Some(
            percent_decode_str(fields.next()?)
                .decode_utf8()
                .ok()?
                .into_owned(),
        )
    };
    let (host, program, label) = (word()?, word()?, word()?);
    let since = UNIX_EPOCH.checked_add(Duration::from_millis(since))?;
    Some((
        share,
        ClaimantInfo {
            host,
            pid,
            program,
            label,
            since,
        },
    ))
}
