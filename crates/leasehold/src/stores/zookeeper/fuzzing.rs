//! The parsers of this store, for random inputs.

use super::layout::Dialect;
use super::queue::Queue;
use super::record;

/// Parses lines as the names of a lock's children, and all of them as the data of a node.
pub fn nodes(bytes: &[u8]) {
    let data = record::read(bytes);
    let _shown = format!("{data:?}");
    let _foreign = record::foreign_info(bytes, "a library", number_at_end(bytes));

    let text = String::from_utf8_lossy(bytes);
    let children: Vec<String> = text.lines().map(str::to_owned).collect();
    for dialect in [Dialect::Curator, Dialect::Kazoo] {
        let _queue = Queue::read(&children, dialect);
        let _known = Queue::read_known(&children, dialect);
    }
}

fn number_at_end(bytes: &[u8]) -> i64 {
    bytes
        .last_chunk()
        .map_or(0, |chunk| i64::from_be_bytes(*chunk))
}
