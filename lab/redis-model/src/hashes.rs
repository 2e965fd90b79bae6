//! Commands on hashes.

use crate::data::{Data, wrong_count};
use crate::reply::{Outcome, Reply};

pub(crate) fn command(data: &mut Data, name: &str, arguments: &[Vec<u8>]) -> Option<Outcome> {
    if !COMMANDS.contains(&name) {
        return None;
    }
    let outcome = execute(data, name, arguments);
    if let Some(key) = arguments.first() {
        data.drop_if_empty(key);
    }
    Some(outcome)
}

const COMMANDS: &[&str] = &[
    "HGET", "HMGET", "HSET", "HSETNX", "HDEL", "HLEN", "HKEYS", "HEXISTS", "HGETALL",
];

fn execute(data: &mut Data, name: &str, arguments: &[Vec<u8>]) -> Outcome {
    let Some((key, rest)) = arguments.split_first() else {
        return Err(wrong_count(name));
    };
    let is_right = match name {
        "HGET" | "HEXISTS" => rest.len() == 1,
        "HMGET" | "HDEL" => !rest.is_empty(),
        "HSET" => !rest.is_empty() && rest.len().is_multiple_of(2),
        "HSETNX" => rest.len() == 2,
        _ => rest.is_empty(),
    };
    if !is_right {
        return Err(wrong_count(name));
    }

    let fields = data.hash(key)?;
    let value_of = |field: &Vec<u8>| {
        let found = fields.iter().find(|(name, _)| name == field);
        found.map(|(_, value)| value)
    };
    Ok(match name {
        "HGET" => Reply::value(value_of(&rest[0])),
        "HMGET" => Reply::List(
            rest.iter()
                .map(|field| Reply::value(value_of(field)))
                .collect(),
        ),
        "HEXISTS" => Reply::Int(i64::from(value_of(&rest[0]).is_some())),
        "HLEN" => Reply::count(fields.len()),
        "HKEYS" => Reply::List(fields.iter().map(|(name, _)| Reply::text(name)).collect()),
        "HGETALL" => {
            let pairs = fields.iter().flat_map(|(name, value)| [name, value]);
            Reply::List(pairs.map(Reply::text).collect())
        }
        "HSETNX" if value_of(&rest[0]).is_some() => Reply::Int(0),
        "HSET" | "HSETNX" => insert(fields, rest),
        _ => {
            let before = fields.len();
            fields.retain(|(name, _)| !rest.contains(name));
            Reply::count(before - fields.len())
        }
    })
}

fn insert(fields: &mut Vec<(Vec<u8>, Vec<u8>)>, pairs: &[Vec<u8>]) -> Reply {
    let before = fields.len();
    for pair in pairs.chunks_exact(2) {
        match fields.iter_mut().find(|(name, _)| *name == pair[0]) {
            Some((_, value)) => value.clone_from(&pair[1]),
            None => fields.push((pair[0].clone(), pair[1].clone())),
        }
    }
    Reply::count(fields.len() - before)
}
