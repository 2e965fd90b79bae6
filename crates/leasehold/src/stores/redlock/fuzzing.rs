//! The parsers of this store, for random inputs.

use std::time::Duration;

use super::fenced::Fenced;
use crate::stores::votes::VoteFormat;

/// Parses a record of a master.
pub fn record(bytes: &[u8]) {
    for remaining in [Duration::ZERO, Duration::from_secs(1)] {
        let inspected = Fenced.read(bytes, remaining);
        let _shown = format!("{inspected:?}");
    }
    if let Ok(key) = std::str::from_utf8(bytes) {
        let _name = Fenced.name_of(key);
    }
}
