//! The format that other libraries use: `SET NX PX` with a random value.
//!
//! One server keeps it for `dialect=plain`, several masters for `dialect=classic`.

use std::fmt::Write as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::utf8_percent_encode;

use super::{Call, Keys, LeaveRequest, VoteFormat, VoteKind, VoteRequest};
use crate::client::{PLAIN, Script, id_from, id_text, list_script, pattern_of, script};
use crate::votes::record::{
    CLIENT_LEN, Holder, ID_LEN, Inspected, TOKEN_LEN, hashed, parse_info, write_info,
};
use leasehold_core::store::{Claim, Share, foreign_claimant};
use leasehold_core::{Error, Name, Result};

/// One key for each lock. The key is the lock's name, and expires with the lease.
///
/// `lua/single_key/vote.lua` describes the layout.
#[derive(Debug)]
pub(crate) struct SingleKey {
    /// Whether a second key counts the tokens of leasehold's own holders.
    counts_tokens: bool,
}

impl SingleKey {
    pub(crate) fn new(counts_tokens: bool) -> &'static Self {
        if counts_tokens {
            &Self {
                counts_tokens: true,
            }
        } else {
            &Self {
                counts_tokens: false,
            }
        }
    }
}

static VOTE: Script = script!("../lua/single_key/vote");
static LEAVE: Script = script!("../lua/single_key/leave");
static INSPECT: Script = script!("../lua/single_key/inspect").only_reads();
static LIST: Script = Script::new(list_script!("../lua/single_key/list")).only_reads();

/// The prefix of the additional keys of a lock, which only leasehold uses.
const KEY_PREFIX: &str = "leasehold:plain:{";
/// The prefix of the values that leasehold writes, and of its own keys.
const OWN_PREFIX: &str = "leasehold:";
/// How much of another library's value is shown. A client that knows the value can release the
/// lock.
const SHOWN_LEN: usize = 8;

impl VoteFormat for SingleKey {
    fn keys(&self, name: &Name) -> Result<Keys> {
        if name.as_str().starts_with(OWN_PREFIX) {
            return Err(Error::invalid(
                "the name is the key in this format, and the prefix \"leasehold:\" is reserved",
            )
            .help("use another name"));
        }

        let encoded = utf8_percent_encode(name.as_str(), PLAIN);
        Ok(Keys {
            lock: name.as_str().to_owned(),
            waiters: format!("{KEY_PREFIX}{encoded}}}:waits"),
            counter: format!("{KEY_PREFIX}{encoded}}}:token"),
        })
    }

    fn pattern(&self, prefix: &str) -> String {
        pattern_of(prefix)
    }

    fn name_of(&self, key: &str) -> Option<Name> {
        let name = Name::parse(key).ok()?;
        (!key.starts_with(OWN_PREFIX)).then_some(name)
    }

    fn remembers_last_token(&self) -> bool {
        false
    }

    fn guarantees_tokens(&self) -> bool {
        self.counts_tokens
    }

    fn record(&self, claim: &Claim, token: u64, client: &str) -> String {
        let mut value = String::with_capacity(256);
        let id = id_text(claim.id);
        // Writing to a string does not fail.
        let _ = write!(value, "{OWN_PREFIX}{client}{id}{token:019}");
        write_info(&mut value, claim);
        value
    }

    fn vote<'a>(
        &self,
        request: &'a VoteRequest,
        kind: VoteKind,
        _incarnation: &'a str,
    ) -> Call<'a> {
        let keys = &request.keys;
        Call {
            script: &VOTE,
            keys: vec![&keys.lock, &keys.counter, &keys.waiters],
            arguments: vec![
                &request.record,
                &request.record_life,
                &request.counter_life,
                &request.waiter,
                kind.argument(),
            ],
        }
    }

    fn leave<'a>(&self, request: &'a LeaveRequest) -> Call<'a> {
        let keys = &request.keys;
        let mut arguments = request.arguments();
        arguments.push(&request.hexadecimal_id);
        arguments.push(&request.counter_life);
        Call {
            script: &LEAVE,
            keys: vec![&keys.lock, &keys.waiters, &keys.counter],
            arguments,
        }
    }

    fn inspect_script(&self) -> &'static Script {
        &INSPECT
    }

    fn list_script(&self) -> &'static Script {
        &LIST
    }

    fn read(&self, value: &[u8], remaining: Duration) -> Option<Inspected> {
        let holder =
            own_holder(value, remaining).unwrap_or_else(|| external_holder(value, remaining));
        Some(Inspected {
            last_token: holder.token,
            holder: Some(holder),
        })
    }
}

/// Reads a value that leasehold wrote.
fn own_holder(value: &[u8], remaining: Duration) -> Option<Holder> {
    let text = std::str::from_utf8(value).ok()?;
    let rest = text.strip_prefix(OWN_PREFIX)?.get(CLIENT_LEN..)?;
    let (id, rest) = rest.split_at_checked(ID_LEN)?;
    let (token, rest) = rest.split_at_checked(TOKEN_LEN)?;
    let (share, info) = parse_info(rest)?;

    Some(Holder {
        id: id_from(id)?,
        token: token.parse().ok()?,
        share,
        info,
        remaining,
    })
}

/// Describes a holder of another library by the hash of its value.
fn external_holder(value: &[u8], remaining: Duration) -> Holder {
    let (id, token) = hashed(value);
    Holder {
        id,
        token: token.get(),
        share: Share::MUTEX,
        info: foreign_claimant(library_of(value), format!("value {}", shown(value))),
        remaining,
    }
}

/// Returns the beginning of another library's value as printable text.
fn shown(value: &[u8]) -> String {
    let text = std::str::from_utf8(value)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()))
        .map_or_else(|| URL_SAFE_NO_PAD.encode(value), str::to_owned);

    let end = text.len().min(SHOWN_LEN);
    format!("{}…", &text[..end])
}

/// Returns the library that writes values of this shape.
fn library_of(value: &[u8]) -> &'static str {
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/".contains(byte);

    match value {
        // One of 64 random values looks like a UUID of version 1.
        value if value.len() == 32 && value.iter().all(is_hex) => match (value[12], value[16]) {
            (b'1', b'8' | b'9' | b'a' | b'b') => "redis-py",
            _ => "node-redlock",
        },
        [start @ .., b'=', b'='] if start.len() == 22 && start.iter().all(is_base64) => "redsync",
        value if value.len() == 24 && value.iter().all(is_base64) => "python-redis-lock",
        value if value.len() == 20 && !value.is_ascii() => "rslock",
        _ => "another library",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_inputs::altered;
    use crate::test_inputs::altered_text;
    use proptest::prelude::*;

    /// Shows G-56.
    #[test]
    fn libraries_are_recognised_by_their_values() {
        for (value, library) in [
            ("9a8e4c7a6f1211efb2c50242ac120002", "redis-py"),
            ("9a8e4c7a6f1241efb2c50242ac120002", "node-redlock"),
            ("MDEyMzQ1Njc4OWFiY2RlZg==", "redsync"),
            ("MDEyMzQ1Njc4OWFiY2RlZmdo", "python-redis-lock"),
            ("MDEyMzQ1Njc4OWFiY2RlZ-==", "another library"),
            ("MDEyMzQ1Njc4OWFiY2Rl==", "another library"),
            ("MDEyMzQ1Njc4OWFiY2RlZmd-", "another library"),
            ("MDEyMzQ1Njc4OWFiY2RlZmd", "another library"),
            ("0123456789abcdef", "another library"),
            ("0123456789abcdefghij", "another library"),
            ("9A8E4C7A6F1211EFB2C50242AC120002", "another library"),
            ("", "another library"),
        ] {
            assert_eq!(library_of(value.as_bytes()), library, "{value}");
        }
        assert_eq!(library_of(&[0xc3; 20]), "rslock");
    }

    proptest! {
        #[test]
        fn any_value_is_read_or_refused(
            value in altered(&[
                "leasehold:0123456789aAAAAAAAAAAAAAAAAAAAAAA0000000000000000007 M 30000 \
                 1763731234567 42 node worker label",
                "5d41402abc4b2a76b9719d911017c592",
            ]),
            key in altered_text(&["job"]),
            counts_tokens: bool,
        ) {
            let format = SingleKey::new(counts_tokens);
            let _inspected = format.read(&value, Duration::from_secs(1));
            let _name = format.name_of(&key);
        }
    }
}
