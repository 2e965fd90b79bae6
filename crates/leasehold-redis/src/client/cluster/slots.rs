//! Slots of keys, and the masters that have them.

use crate::client::reply_error;
use crate::client::request::command;
use crate::client::server_info::field;
use crate::client::session::Session;
use crate::client::value::Value;
use leasehold_core::internal::Host;
use leasehold_core::{Error, Result};

const SLOTS: u16 = 16_384;

/// The slots from a first to a last one, and the address that their master announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) master: Host,
}

/// The slots as one node sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges {
    /// The highest number of a configuration in the cluster. Each failover raises it.
    pub(super) epoch: u64,
    pub(super) ranges: Vec<Range>,
}

/// Returns the slot of a key: of the part between the first braces, if there is one.
pub(crate) fn slot_of(key: &str) -> u16 {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map(|(tag, _)| tag)
        .filter(|tag| !tag.is_empty());
    crc16(tag.unwrap_or(key).as_bytes()) % SLOTS
}

/// CRC-16/XMODEM, as the specification of Redis Cluster requires.
fn crc16(bytes: &[u8]) -> u16 {
    const POLYNOMIAL: u16 = 0x1021;
    let shifted = |crc: u16, _| {
        let carry = crc & 0x8000 != 0;
        if carry {
            crc << 1 ^ POLYNOMIAL
        } else {
            crc << 1
        }
    };
    let add = |crc: u16, byte: &u8| (0..8).fold(crc ^ u16::from(*byte) << 8, shifted);
    bytes.iter().fold(0, add)
}

/// Requests the slots from the node at `host`.
///
/// # Errors
/// [`is_unavailable`](Error::is_unavailable) also if the node does not see a whole cluster: it may
/// be cut off from the others.
pub(super) async fn ask(session: &Session, host: &Host) -> Result<Ranges> {
    let request = |word: &str| {
        let mut request = command("CLUSTER");
        request.arg(word);
        request
    };
    let info: String = session.request(&request("INFO")).await?;
    if field(&info, "cluster_state") != Some("ok") {
        return Err(Error::unavailable("the cluster is down"));
    }

    let slots = session.request(&request("SLOTS")).await?;
    let epoch = field(&info, "cluster_current_epoch");
    Ok(Ranges {
        epoch: epoch.and_then(|epoch| epoch.parse().ok()).unwrap_or(0),
        ranges: parse(&slots, host).ok_or_else(reply_error::protocol_error)?,
    })
}

/// Parses the reply to `CLUSTER SLOTS` of the node at `host`.
pub(crate) fn parse(reply: &Value, host: &Host) -> Option<Vec<Range>> {
    let Value::Array(ranges) = reply else {
        return None;
    };
    ranges
        .iter()
        .map(|range| parse_range(range, host))
        .collect()
}

fn parse_range(range: &Value, host: &Host) -> Option<Range> {
    let Value::Array(fields) = range else {
        return None;
    };
    let [
        Value::Int(first),
        Value::Int(last),
        Value::Array(master),
        ..,
    ] = &fields[..]
    else {
        return None;
    };
    let [name, Value::Int(port), ..] = &master[..] else {
        return None;
    };

    // A node that does not know its own address announces none.
    let announced = match name {
        Value::Text(name) => name.as_str()?,
        _ => "",
    };
    let is_known = !announced.is_empty() && announced != "?";
    let name = if is_known { announced } else { &host.name };
    Some(Range {
        first: u16::try_from(*first).ok()?,
        last: u16::try_from(*last).ok()?,
        master: Host {
            name: name.to_owned(),
            port: u16::try_from(*port).ok()?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::reader::parse_reply;
    use crate::test_inputs::altered;
    use proptest::prelude::*;

    /// The values are those of `CLUSTER KEYSLOT`.
    #[test]
    fn slots_are_those_of_the_server() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot_of("123456789"), 0x31c3);
        assert_eq!(slot_of("foo"), 12_182);
        assert_eq!(slot_of("leasehold:{foo}:queue"), 12_182);
        assert_eq!(slot_of("foo{}"), crc16(b"foo{}") % SLOTS);
    }

    proptest! {
        #[test]
        fn any_reply_is_parsed_or_refused(
            bytes in altered(&[
                "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:7000\r\n$1\r\nx\r\n",
                "*1\r\n*3\r\n:0\r\n:8191\r\n*2\r\n_\r\n:7000\r\n",
            ]),
        ) {
            let host = Host {
                name: "h".to_owned(),
                port: 1,
            };
            if let Some(reply) = parse_reply(&bytes) {
                let _slots = parse(&reply, &host);
            }
        }
    }
}
