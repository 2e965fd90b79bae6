//! Commands on any key, and commands without a key.

use std::collections::BTreeSet;

use crate::data::{Data, Value, integer, wrong_count};
use crate::reply::{Outcome, Reply};

pub(crate) fn command(data: &mut Data, name: &str, arguments: &[Vec<u8>]) -> Option<Outcome> {
    let outcome = match (name, arguments) {
        ("EXISTS", keys @ [_, ..]) => {
            let exists = keys.iter().filter(|key| data.get(key).is_some()).count();
            Ok(Reply::count(exists))
        }
        ("DEL", keys @ [_, ..]) => {
            let removed = keys.iter().filter(|key| data.remove(key)).count();
            Ok(Reply::count(removed))
        }
        ("TYPE", [key]) => Ok(Reply::Status(type_of(data, key).to_owned())),
        ("PTTL", [key]) => Ok(Reply::Int(time_to_live(data, key))),
        ("PEXPIRE", [key, time]) => expire(data, key, time),
        ("PERSIST", [key]) => {
            let had = data
                .get(key)
                .is_some_and(|stored| stored.expires_at.take().is_some());
            Ok(Reply::Int(i64::from(had)))
        }
        ("PEXPIRE", [_, _, option, ..]) => {
            let option = String::from_utf8_lossy(option);
            Err(format!("ERR Unsupported option {option}"))
        }
        ("SCAN", [cursor, options @ ..]) => scan(data, cursor, options),
        ("TIME", []) => {
            let seconds = (data.now / 1_000_000).to_string();
            let micros = (data.now % 1_000_000).to_string();
            Ok(Reply::List(vec![Reply::text(seconds), Reply::text(micros)]))
        }
        ("PUBLISH", [channel, text]) => Ok(data.publish(channel, text)),
        ("PUBSUB", [word, channels @ ..]) if word.eq_ignore_ascii_case(b"NUMSUB") => {
            Ok(subscribers(data, channels))
        }
        ("INFO", [section]) => Ok(Reply::text(info(data, section))),
        ("EXISTS" | "DEL" | "TYPE" | "PTTL" | "PEXPIRE" | "PERSIST" | "TIME" | "PUBLISH", _) => {
            Err(wrong_count(name))
        }
        _ => return None,
    };
    Some(outcome)
}

/// Lists all keys in one page. A pattern is a prefix with an asterisk, as leasehold sends it.
fn scan(data: &mut Data, cursor: &[u8], options: &[Vec<u8>]) -> Outcome {
    let is_number = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    if !is_number(cursor) {
        return Err("ERR invalid cursor".to_owned());
    }
    let option = |name: &[u8]| {
        let mut pairs = options.chunks_exact(2);
        let pair = pairs.find(|pair| pair[0].eq_ignore_ascii_case(name));
        pair.map(|pair| &*pair[1])
    };
    let prefix = option(b"MATCH").map(prefix_of).unwrap_or_default();
    let wanted = option(b"TYPE");
    if !option(b"COUNT").is_none_or(is_number) {
        return Err("ERR value is not an integer or out of range".to_owned());
    }

    let mut names = data.names();
    names.retain(|name| {
        let kind = type_of(data, name);
        name.starts_with(&prefix) && wanted.is_none_or(|wanted| wanted == kind.as_bytes())
    });
    let names = names.iter().map(Reply::text).collect();
    Ok(Reply::List(vec![Reply::text("0"), Reply::List(names)]))
}

/// Returns the text that a pattern of a prefix describes. A backslash precedes a literal character.
fn prefix_of(pattern: &[u8]) -> Vec<u8> {
    let mut prefix = Vec::new();
    let mut bytes = pattern.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => prefix.extend(bytes.next()),
            b'*' => break,
            byte => prefix.push(*byte),
        }
    }
    prefix
}

fn type_of(data: &mut Data, key: &[u8]) -> &'static str {
    match data.get(key).map(|stored| &stored.value) {
        None => "none",
        Some(Value::Text(_)) => "string",
        Some(Value::Hash(_)) => "hash",
        Some(Value::SortedSet(_)) => "zset",
        Some(Value::List(_)) => "list",
    }
}

fn time_to_live(data: &mut Data, key: &[u8]) -> i64 {
    let now = data.now_millis();
    match data.get(key).map(|stored| stored.expires_at) {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => (at - now).max(0),
    }
}

fn expire(data: &mut Data, key: &[u8], time: &[u8]) -> Outcome {
    let invalid = || "ERR invalid expire time in 'pexpire' command".to_owned();
    let time = integer(time)?;
    let at = time.checked_add(data.now_millis()).ok_or_else(invalid)?;

    let now = data.now_millis();
    let Some(stored) = data.get(key) else {
        return Ok(Reply::Int(0));
    };
    stored.expires_at = Some(at);
    if at <= now {
        data.remove(key);
    }
    Ok(Reply::Int(1))
}

fn subscribers(data: &Data, channels: &[Vec<u8>]) -> Reply {
    let count = |channel| data.channels.get(channel).map_or(0, BTreeSet::len);
    let counts = channels
        .iter()
        .flat_map(|channel| [Reply::text(channel), Reply::count(count(channel))]);
    Reply::List(counts.collect())
}

/// The first word of the reply to `ROLE`.
pub(crate) fn role(data: &Data) -> &'static str {
    if data.is_replica { "slave" } else { "master" }
}

/// What the handshake and the scripts read.
fn info(data: &Data, section: &[u8]) -> String {
    match section {
        b"server" => {
            let run = &data.run;
            format!("# Server\r\nredis_version:7.0.15\r\nrun_id:{run}\r\n")
        }
        b"memory" => "# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n".to_owned(),
        b"replication" => {
            let role = role(data);
            let history = &data.history;
            format!("# Replication\r\nrole:{role}\r\nmaster_replid:{history}\r\n")
        }
        _ => String::new(),
    }
}
