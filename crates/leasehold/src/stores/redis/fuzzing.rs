//! The parsers of this store, for random inputs.

use super::enter_reply::EnterReply;
use super::layout::reply;
use super::push::Push;
use super::record;
use super::renewal::parse_renewals;

/// Parses a text as everything that the server keeps or sends.
pub fn texts(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let entry = record::entry(text, 0);
    let _shown = format!("{entry:?}");
    let _name = record::name_of(text);
    let _push = Push::parse(text);

    let id = reply::CLAIM.read(text).unwrap_or_default();
    let _entered = EnterReply::parse(text, id);
    for count in [0, 1, 3] {
        let _renewed = parse_renewals(text, id, count);
        let _renewed = parse_renewals(text, "", count);
    }
}
