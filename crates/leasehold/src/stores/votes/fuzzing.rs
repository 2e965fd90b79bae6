//! The parsers of votes, for random inputs.

use std::time::Duration;

use super::record::{ID_LEN, Push, VoteReply};
use super::{SingleKey, VoteFormat, parse_info};

/// Parses a text as everything that a master keeps or sends.
pub fn texts(bytes: &[u8]) {
    for counts_tokens in [false, true] {
        let format = SingleKey::new(counts_tokens);
        let inspected = format.read(bytes, Duration::from_secs(1));
        let _shown = format!("{inspected:?}");
    }

    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let id = text.len().checked_sub(ID_LEN).and_then(|at| text.get(at..));
    let _reply = VoteReply::parse(text, id.unwrap_or_default());
    let _push = Push::parse(text);
    let _info = parse_info(text);
    let _name = SingleKey::new(false).name_of(text);
}
