//! Names that have a meaning in a file system, a protocol or a pattern.

use percent_encoding::percent_decode_str;

use crate::Random;

/// Each is a lock of its own.
const NAMES: [&str; 22] = [
    ".",
    "..",
    "/",
    "/../..",
    "../../etc/passwd",
    "%2F",
    "%",
    "+",
    "{}",
    "a}b{c",
    "{a}/b",
    "{a}/b~:queue",
    "*",
    "?[a]",
    "\0",
    "\r\n$3\r\nDEL\r\n",
    "\u{202e}ü",
    " ",
    ".members",
    "a.lock",
    "a:queue",
    "zookeeper",
];

/// Draws three different names. One of them may have the greatest length.
pub(crate) fn three(seed: u64) -> Vec<String> {
    let mut random = Random::seeded(seed);
    let longest = "x".repeat(leasehold::Name::LEN_MAX);
    let mut left: Vec<&str> = NAMES.into_iter().chain([&*longest]).collect();
    let mut draw = || {
        left.swap_remove(usize::try_from(random.below(left.len() as u64)).expect("a few"))
            .to_owned()
    };
    vec![draw(), draw(), draw()]
}

/// Invalid names: an empty one, and one that is far too long.
pub(crate) fn no_names() -> [String; 2] {
    [String::new(), "x".repeat(64 * 1024)]
}

/// Decodes the `%XX` that stores write.
pub(crate) fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}
