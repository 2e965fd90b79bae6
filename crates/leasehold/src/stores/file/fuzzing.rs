//! The parsers of this store, for random inputs.

use super::counter::{COUNTER_LEN, TokenCounter};
use super::entry::StoredClaim;
use super::folder::names;
use super::{lock_file, process, queue_file};

/// Parses a queue file.
pub fn queue_file(bytes: &[u8]) {
    let _counter = TokenCounter::read(bytes);
    let slots = bytes.get(COUNTER_LEN..).unwrap_or_default();
    let (entries, _torn) = queue_file::read_entries(slots);
    entries.iter().for_each(read_fields);
}

fn read_fields(claim: &StoredClaim) {
    let _shown = format!("{:?} {:?}", claim.info(), claim.process());
    let _rewritten = claim.to_bytes();
    let _grant = (claim.id(), claim.share(), claim.token());
}

/// Parses wakeups, names of files, and lines of `/proc/locks`.
pub fn small_files(bytes: &[u8]) {
    let _ids = process::parse_ids(bytes);
    let text = String::from_utf8_lossy(bytes);
    let _name = names::decode(&text);
    let _pid = lock_file::parse_holder(&text, "fe:00:264");
}
