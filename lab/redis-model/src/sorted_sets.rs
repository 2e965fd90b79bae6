//! Commands on sorted sets.

use crate::data::{Data, integer, wrong_count};
use crate::reply::{Outcome, Reply, SYNTAX};

type Members = Vec<(f64, Vec<u8>)>;

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
    "ZADD",
    "ZREM",
    "ZRANGE",
    "ZRANGEBYSCORE",
    "ZRANK",
    "ZCARD",
    "ZCOUNT",
    "ZSCORE",
    "ZPOPMIN",
];

fn execute(data: &mut Data, name: &str, arguments: &[Vec<u8>]) -> Outcome {
    let Some((key, rest)) = arguments.split_first() else {
        return Err(wrong_count(name));
    };
    let is_right = match name {
        "ZADD" | "ZRANGE" | "ZRANGEBYSCORE" => rest.len() >= 2,
        "ZREM" => !rest.is_empty(),
        "ZCOUNT" => rest.len() == 2,
        "ZRANK" | "ZSCORE" => rest.len() == 1,
        "ZCARD" => rest.is_empty(),
        // More than a count is an error of the syntax.
        _ => true,
    };
    if !is_right {
        return Err(wrong_count(name));
    }

    match name {
        "ZADD" => add(data, key, rest),
        "ZRANGE" => range(data, key, rest),
        "ZRANGEBYSCORE" => range_by_score(data, key, rest),
        "ZCOUNT" => Ok(Reply::count(inside(data, key, rest)?.len())),
        "ZPOPMIN" => pop(data, key, rest),
        "ZCARD" => Ok(Reply::count(data.sorted_set(key)?.len())),
        "ZRANK" => {
            let mut members = data.sorted_set(key)?.iter();
            let rank = members.position(|(_, member)| *member == rest[0]);
            Ok(rank.map_or(Reply::Nil, Reply::count))
        }
        "ZSCORE" => {
            let mut members = data.sorted_set(key)?.iter();
            let found = members.find(|(_, member)| *member == rest[0]);
            Ok(found.map_or(Reply::Nil, |(score, _)| Reply::text(shown(*score))))
        }
        _ => {
            let members = data.sorted_set(key)?;
            let before = members.len();
            members.retain(|(_, member)| !rest.contains(member));
            Ok(Reply::count(before - members.len()))
        }
    }
}

fn add(data: &mut Data, key: &[u8], arguments: &[Vec<u8>]) -> Outcome {
    let is_new_only = arguments[0].eq_ignore_ascii_case(b"NX");
    let pairs = &arguments[usize::from(is_new_only)..];
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(SYNTAX.to_owned());
    }
    let scores = pairs
        .iter()
        .step_by(2)
        .map(|text| score(text))
        .collect::<Result<Vec<f64>, String>>()?;

    let members = data.sorted_set(key)?;
    let before = members.len();
    for (score, pair) in scores.into_iter().zip(pairs.chunks_exact(2)) {
        match members.iter_mut().find(|(_, member)| *member == pair[1]) {
            Some(_) if is_new_only => {}
            Some((present, _)) => *present = score,
            None => members.push((score, pair[1].clone())),
        }
    }
    sort(members);
    Ok(Reply::count(members.len() - before))
}

fn sort(members: &mut Members) {
    members.sort_by(|(a, first), (b, second)| a.total_cmp(b).then_with(|| first.cmp(second)));
}

fn range(data: &mut Data, key: &[u8], arguments: &[Vec<u8>]) -> Outcome {
    let mut has_scores = false;
    for option in &arguments[2..] {
        if !option.eq_ignore_ascii_case(b"WITHSCORES") {
            return Err(SYNTAX.to_owned());
        }
        has_scores = true;
    }
    let first = integer(&arguments[0])?;
    let last = integer(&arguments[1])?;
    let members = data.sorted_set(key)?;

    let len = i64::try_from(members.len()).unwrap_or(i64::MAX);
    let from_end = |at: i64| if at < 0 { len.saturating_add(at) } else { at };
    let first = from_end(first).max(0);
    let last = from_end(last).min(len - 1);
    if first > last {
        return Ok(Reply::List(Vec::new()));
    }
    let range = usize::try_from(first).unwrap_or(0)..=usize::try_from(last).unwrap_or(0);
    Ok(listed(&members[range], has_scores))
}

fn range_by_score(data: &mut Data, key: &[u8], arguments: &[Vec<u8>]) -> Outcome {
    let mut skipped = 0;
    let mut count = -1;
    let mut options = &arguments[2..];
    while let [option, rest @ ..] = options {
        match rest {
            [first, length, rest @ ..] if option.eq_ignore_ascii_case(b"LIMIT") => {
                skipped = integer(first)?;
                count = integer(length)?;
                options = rest;
            }
            _ => return Err(SYNTAX.to_owned()),
        }
    }
    let inside = inside(data, key, arguments)?.into_iter();
    let Ok(skipped) = usize::try_from(skipped) else {
        return Ok(Reply::List(Vec::new()));
    };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let found: Members = inside.skip(skipped).take(count).collect();
    Ok(listed(&found, false))
}

/// Returns the members whose scores are within two bounds.
fn inside(data: &mut Data, key: &[u8], bounds: &[Vec<u8>]) -> Result<Members, String> {
    let min = bound(&bounds[0])?;
    let max = bound(&bounds[1])?;

    let members = data.sorted_set(key)?.iter();
    let inside = members.filter(|(score, _)| {
        let is_above = if min.1 {
            *score > min.0
        } else {
            *score >= min.0
        };
        let is_below = if max.1 {
            *score < max.0
        } else {
            *score <= max.0
        };
        is_above && is_below
    });
    Ok(inside.cloned().collect())
}

/// Parses a bound, and whether it excludes the score itself.
fn bound(text: &[u8]) -> Result<(f64, bool), String> {
    let (text, excludes) = match text.strip_prefix(b"(") {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let score = score(text).map_err(|_| "ERR min or max is not a float")?;
    Ok((score, excludes))
}

fn score(text: &[u8]) -> Result<f64, String> {
    let not_a_float = || "ERR value is not a valid float".to_owned();
    let text = std::str::from_utf8(text).map_err(|_| not_a_float())?;
    let number: f64 = text.parse().map_err(|_| not_a_float())?;
    if number.is_nan() {
        return Err(not_a_float());
    }
    Ok(number)
}

fn pop(data: &mut Data, key: &[u8], arguments: &[Vec<u8>]) -> Outcome {
    if arguments.len() > 1 {
        return Err(SYNTAX.to_owned());
    }
    let count = match arguments.first() {
        None => 1,
        Some(count) => {
            let count = integer(count)
                .ok()
                .and_then(|count| usize::try_from(count).ok());
            count.ok_or("ERR value is out of range, must be positive")?
        }
    };
    let members = data.sorted_set(key)?;
    let popped: Members = members.drain(..count.min(members.len())).collect();
    Ok(listed(&popped, true))
}

fn listed(members: &[(f64, Vec<u8>)], has_scores: bool) -> Reply {
    let mut list = Vec::new();
    for (score, member) in members {
        list.push(Reply::text(member));
        if has_scores {
            list.push(Reply::text(shown(*score)));
        }
    }
    Reply::List(list)
}

/// Writes a score as Redis does, if it is an integer.
fn shown(score: f64) -> String {
    match score {
        f64::INFINITY => "inf".to_owned(),
        f64::NEG_INFINITY => "-inf".to_owned(),
        score => format!("{score}"),
    }
}
