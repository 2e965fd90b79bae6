//! Commands on lists: those of an `RFairLock` of Redisson, whose waiters are one.

use crate::data::{Data, integer, wrong_count};
use crate::reply::{Outcome, Reply};

pub(crate) fn command(data: &mut Data, name: &str, arguments: &[Vec<u8>]) -> Option<Outcome> {
    let outcome = match (name, arguments) {
        ("RPUSH", [key, values @ ..]) if !values.is_empty() => data.list(key).map(|list| {
            list.extend_from_slice(values);
            Reply::count(list.len())
        }),
        ("LRANGE", [key, first, last]) => range(data, key, first, last).map(|range| {
            let values = range.iter().map(Reply::text);
            Reply::List(values.collect())
        }),
        // The server reads the position last.
        ("LINDEX", [key, at]) => match data.list(key).map(|list| list.is_empty()) {
            Ok(true) => Ok(Reply::Nil),
            Ok(false) => range(data, key, at, at).map(|range| Reply::value(range.first())),
            Err(error) => Err(error),
        },
        ("RPUSH" | "LRANGE" | "LINDEX", _) => Err(wrong_count(name)),
        _ => return None,
    };
    if let Some(key) = arguments.first() {
        data.drop_if_empty(key);
    }
    Some(outcome)
}

fn range<'a>(
    data: &'a mut Data,
    key: &[u8],
    first: &[u8],
    last: &[u8],
) -> Result<&'a [Vec<u8>], String> {
    let first = integer(first)?;
    let last = integer(last)?;
    let values = data.list(key)?;

    let len = i64::try_from(values.len()).unwrap_or(i64::MAX);
    let from_end = |at: i64| if at < 0 { len.saturating_add(at) } else { at };
    let first = from_end(first).max(0);
    let last = from_end(last).min(len - 1);
    if first > last {
        return Ok(&[]);
    }
    let range = usize::try_from(first).unwrap_or(0)..=usize::try_from(last).unwrap_or(0);
    Ok(&values[range])
}
