//! The words of a URL, and what they mean whatever the store.

use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::{Error, Result};

/// `500ms`, `10s` or `2m`; zero for what is none.
pub(super) fn duration(text: &str) -> Duration {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let count: u64 = text[..digits].parse().unwrap_or(0);
    let unit = match &text[digits..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        _ => 0,
    };
    Duration::from_millis(count.saturating_mul(unit))
}

pub(super) fn decoded(text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded
        .map(Into::into)
        .map_err(|_| Error::invalid("the URL has bytes that are no UTF-8"))
}

/// The password in a file, without the end of its line.
pub(super) fn password_in(path: &str) -> Result<String> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Error::invalid(format!("the password file {path:?} cannot be read")).caused_by(error)
    })?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}
