//! Commands on texts.

use crate::data::{Data, Stored, Value, integer, wrong_count};
use crate::reply::{NOT_AN_INTEGER, Outcome, Reply, SYNTAX};

/// The longest text, 512 MB.
const LEN_MAX: i64 = 512 * 1024 * 1024;

pub(crate) fn command(data: &mut Data, name: &str, arguments: &[Vec<u8>]) -> Option<Outcome> {
    let outcome = match (name, arguments) {
        ("GET", [key]) => data.text(key).map(|text| Reply::value(text.as_deref())),
        ("SET", [key, value, options @ ..]) => set(data, key, value, options),
        ("SETRANGE", [key, at, part]) => set_range(data, key, at, part),
        ("GETRANGE", [key, first, last]) => get_range(data, key, first, last),
        ("STRLEN", [key]) => data
            .text(key)
            .map(|text| Reply::count(text.map_or(0, |text| text.len()))),
        ("INCR", [key]) => increment(data, key, 1),
        ("INCRBY", [key, by]) => integer(by).and_then(|by| increment(data, key, by)),
        ("DECRBY", [key, by]) => integer(by).and_then(|by| {
            let by = by.checked_neg().ok_or("ERR decrement would overflow")?;
            increment(data, key, by)
        }),
        ("GET" | "SET" | "SETRANGE" | "GETRANGE" | "STRLEN" | "INCR" | "INCRBY" | "DECRBY", _) => {
            Err(wrong_count(name))
        }
        _ => return None,
    };
    Some(outcome)
}

fn set(data: &mut Data, key: &[u8], value: &[u8], options: &[Vec<u8>]) -> Outcome {
    let mut expires_at = None;
    let mut only_if = None;
    let mut words = options.iter();
    while let Some(word) = words.next() {
        let option = String::from_utf8_lossy(word).to_uppercase();
        match option.as_str() {
            "NX" if only_if != Some(true) => only_if = Some(false),
            "XX" if only_if != Some(false) => only_if = Some(true),
            "PX" | "EX" if expires_at.is_none() => {
                expires_at = Some((words.next().ok_or(SYNTAX)?, option));
            }
            _ => return Err(SYNTAX.to_owned()),
        }
    }
    let expires_at = expires_at
        .map(|(time, unit)| expiry(data, time, &unit))
        .transpose()?;

    if only_if.is_some_and(|exists| data.get(key).is_some() != exists) {
        return Ok(Reply::Nil);
    }
    let value = Value::Text(value.to_vec());
    data.set(key, Stored { value, expires_at });
    Ok(Reply::ok())
}

fn expiry(data: &Data, time: &[u8], unit: &str) -> Result<i64, String> {
    let invalid = || "ERR invalid expire time in 'set' command".to_owned();
    let time = integer(time)?;
    let factor = if unit == "EX" { 1_000 } else { 1 };
    if time <= 0 {
        return Err(invalid());
    }
    let millis = time.checked_mul(factor).ok_or_else(invalid)?;
    millis.checked_add(data.now_millis()).ok_or_else(invalid)
}

fn set_range(data: &mut Data, key: &[u8], at: &[u8], part: &[u8]) -> Outcome {
    let at = integer(at)?;
    if at < 0 {
        return Err("ERR offset is out of range".to_owned());
    }
    let len = data.text(key)?.map_or(0, |text| text.len());
    if part.is_empty() {
        return Ok(Reply::count(len));
    }
    let part_len = i64::try_from(part.len()).unwrap_or(i64::MAX);
    if at.checked_add(part_len).is_none_or(|end| end > LEN_MAX) {
        return Err("ERR string exceeds maximum allowed size (proto-max-bulk-len)".to_owned());
    }

    if data.get(key).is_none() {
        let value = Value::Text(Vec::new());
        let expires_at = None;
        data.set(key, Stored { value, expires_at });
    }
    let text = data.text(key)?.expect("it has just been made");
    let at = usize::try_from(at).expect("it is not negative");
    let end = at + part.len();
    if text.len() < end {
        text.resize(end, 0);
    }
    text[at..end].copy_from_slice(part);
    Ok(Reply::count(text.len()))
}

fn get_range(data: &mut Data, key: &[u8], first: &[u8], last: &[u8]) -> Outcome {
    let first = integer(first)?;
    let last = integer(last)?;
    let Some(text) = data.text(key)? else {
        return Ok(Reply::text(""));
    };

    let len = i64::try_from(text.len()).unwrap_or(i64::MAX);
    if first < 0 && last < 0 && first > last {
        return Ok(Reply::text(""));
    }
    let from_end = |at: i64| {
        if at < 0 {
            (len.saturating_add(at)).max(0)
        } else {
            at
        }
    };
    let first = from_end(first);
    let last = from_end(last).min(len - 1);
    if first > last || len == 0 {
        return Ok(Reply::text(""));
    }
    let range = usize::try_from(first).unwrap_or(0)..=usize::try_from(last).unwrap_or(0);
    Ok(Reply::text(&text[range]))
}

fn increment(data: &mut Data, key: &[u8], by: i64) -> Outcome {
    let number = match data.text(key)? {
        Some(text) => integer(text)?,
        None => 0,
    };
    let next = number
        .checked_add(by)
        .ok_or("ERR increment or decrement would overflow")?;
    let text = next.to_string().into_bytes();
    match data.text(key).map_err(|_| NOT_AN_INTEGER)? {
        Some(present) => *present = text,
        None => data.set(
            key,
            Stored {
                value: Value::Text(text),
                expires_at: None,
            },
        ),
    }
    Ok(Reply::Int(next))
}
