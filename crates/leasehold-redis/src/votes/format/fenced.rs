//! The format of leasehold: a master remembers the last token that it has granted.

use std::fmt::Write as _;
use std::time::Duration;

use percent_encoding::{percent_decode_str, utf8_percent_encode};

use super::{Call, Keys, LeaveRequest, VoteFormat, VoteKind, VoteRequest};
use crate::client::{PLAIN, Script, id_from, id_text, list_script, script};
use crate::votes::record::{
    CLIENT_LEN, Holder, ID_LEN, INCARNATION_KEY, Inspected, TOKEN_LEN, parse_info, write_info,
};
use leasehold_core::store::Claim;
use leasehold_core::{Name, Result};

/// One record for each lock, which outlives the lock by a day.
///
/// `redlock/lua/vote.lua` describes the layout.
#[derive(Debug)]
pub(crate) struct Fenced;

static VOTE: Script = script!("../redlock/lua/vote");
static LEAVE: Script = script!("../redlock/lua/leave");
static INSPECT: Script = script!("../redlock/lua/inspect").only_reads();
static LIST: Script = Script::new(list_script!("../redlock/lua/list")).only_reads();

const KEY_PREFIX: &str = "leasehold:redlock:{";

impl VoteFormat for Fenced {
    fn keys(&self, name: &Name) -> Result<Keys> {
        let encoded = utf8_percent_encode(name.as_str(), PLAIN);
        let lock = format!("{KEY_PREFIX}{encoded}}}");
        Ok(Keys {
            waiters: format!("{lock}:waits"),
            counter: String::new(),
            lock,
        })
    }

    fn pattern(&self, prefix: &str) -> String {
        // In a pattern neither a percent sign nor an unencoded character has a special meaning.
        format!("{KEY_PREFIX}{}*}}", utf8_percent_encode(prefix, PLAIN))
    }

    fn name_of(&self, key: &str) -> Option<Name> {
        let encoded = key.strip_prefix(KEY_PREFIX)?.strip_suffix('}')?;
        let name = percent_decode_str(encoded).decode_utf8().ok()?;
        Name::parse(&name).ok()
    }

    fn remembers_last_token(&self) -> bool {
        true
    }

    fn guarantees_tokens(&self) -> bool {
        true
    }

    fn record(&self, claim: &Claim, token: u64, client: &str) -> String {
        let mut record = String::with_capacity(256);
        let id = id_text(claim.id);
        // Writing to a string does not fail.
        let _ = write!(record, "{token:019}H{token:019}{id}{client}");
        write_info(&mut record, claim);
        record
    }

    fn vote<'a>(
        &self,
        request: &'a VoteRequest,
        _kind: VoteKind,
        incarnation: &'a str,
    ) -> Call<'a> {
        Call {
            script: &VOTE,
            keys: vec![&request.keys.lock, INCARNATION_KEY, &request.keys.waiters],
            arguments: vec![
                &request.record,
                &request.record_life,
                incarnation,
                &request.waiter,
            ],
        }
    }

    fn leave<'a>(&self, request: &'a LeaveRequest) -> Call<'a> {
        Call {
            script: &LEAVE,
            keys: vec![&request.keys.lock, &request.keys.waiters],
            arguments: request.arguments(),
        }
    }

    fn inspect_script(&self) -> &'static Script {
        &INSPECT
    }

    fn list_script(&self) -> &'static Script {
        &LIST
    }

    fn read(&self, record: &[u8], remaining: Duration) -> Option<Inspected> {
        let text = std::str::from_utf8(record).ok()?;
        let last_token = text.get(..TOKEN_LEN)?.parse().ok()?;
        let (state, rest) = text.get(TOKEN_LEN..)?.split_at_checked(1)?;
        if state == "~" || remaining.is_zero() {
            return Some(Inspected {
                last_token,
                holder: None,
            });
        }

        let (token, rest) = rest.split_at_checked(TOKEN_LEN)?;
        let (id, rest) = rest.split_at_checked(ID_LEN)?;
        let (share, info) = parse_info(rest.get(CLIENT_LEN..)?)?;
        let holder = Holder {
            id: id_from(id)?,
            token: token.parse().ok()?,
            share,
            info,
            remaining,
        };
        Some(Inspected {
            last_token,
            holder: Some(holder),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_inputs::altered;
    use crate::test_inputs::altered_text;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_record_is_read_or_refused(
            record in altered(&[
                "0000000000000000007H0000000000000000007AAAAAAAAAAAAAAAAAAAAAA0123456789a M 30000 \
                 1763731234567 42 node worker label",
                "0000000000000000007~",
                "0000000000000000007H0000000000000000007AAAAAAAAAAAAAAAAAAAAAA0123456789a W 30000 \
                 1763731234567 42 node worker label +3",
            ]),
            key in altered_text(&["leasehold:redlock:{a%2Fb}"]),
        ) {
            for remaining in [Duration::ZERO, Duration::from_secs(1)] {
                let _inspected = Fenced.read(&record, remaining);
            }
            let _name = Fenced.name_of(&key);
        }
    }
}
