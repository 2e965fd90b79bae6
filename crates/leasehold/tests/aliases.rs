//! The words of other libraries find an item of this one in the search of its documentation.
#![allow(missing_docs)]

use std::path::Path;

/// A word that a user of another library types, and the item that it stands for. On a function of
/// another crate, rustdoc only takes the alias of its `use`.
const WORDS: &[(&str, &str, &str)] = &[
    ("connect", "leasehold/src/open.rs", "pub async fn open("),
    (
        "ping",
        "leasehold/src/open/examine.rs",
        "pub async fn examine(",
    ),
    (
        "ping",
        "leasehold-core/src/locks.rs",
        "pub async fn inspect(",
    ),
    ("lock", "leasehold-core/src/locks.rs", "pub fn mutex("),
    (
        "permits",
        "leasehold-core/src/locks.rs",
        "pub fn semaphore(",
    ),
    (
        "elect",
        "leasehold-core/src/election.rs",
        "pub fn election(",
    ),
    (
        "elect",
        "leasehold-core/src/election.rs",
        "pub fn campaign(",
    ),
    ("ttl", "leasehold-core/src/lock.rs", "pub fn lease("),
    ("lock", "leasehold-core/src/lock.rs", "pub fn acquire("),
    (
        "try_lock",
        "leasehold-core/src/lock.rs",
        "pub fn try_acquire(",
    ),
    (
        "timeout",
        "leasehold-core/src/lock.rs",
        "pub fn try_acquire_for(",
    ),
    (
        "acquire_timeout",
        "leasehold-core/src/lock.rs",
        "pub fn try_acquire_for(",
    ),
    ("run", "leasehold-core/src/run.rs", "pub fn run<"),
    ("with_lock", "leasehold-core/src/run.rs", "pub fn run<"),
    ("is_held", "leasehold-core/src/guard.rs", "pub fn is_held("),
    ("is_valid", "leasehold-core/src/guard.rs", "pub fn is_held("),
    ("extend", "leasehold-core/src/guard.rs", "pub fn renewal("),
    ("refresh", "leasehold-core/src/guard.rs", "pub fn renewal("),
    (
        "unlock",
        "leasehold-core/src/guard.rs",
        "pub async fn release(",
    ),
    ("u64", "leasehold-core/src/token.rs", "pub fn get("),
    ("i64", "leasehold-core/src/token.rs", "pub fn to_i64("),
    (
        "close",
        "leasehold/src/lib.rs",
        "pub use leasehold_core::drain;",
    ),
];

#[test]
fn words_of_other_libraries_find_their_items() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (word, file, item) in WORDS {
        let text = std::fs::read_to_string(crates.join(file)).expect("a source");
        let before = text.split_once(item).expect("an item").0;
        let attributes = before.lines().rev();
        let mut attributes = attributes.take_while(|line| !line.trim_end().ends_with('}'));

        let is_name = item.contains(&format!("fn {word}"));
        let alias = format!("#[doc(alias = \"{word}\")]");
        let is_alias = attributes.any(|line| line.trim() == alias);
        assert!(is_name || is_alias, "{word} does not find `{item}`");
    }
}
