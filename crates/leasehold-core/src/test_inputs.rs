//! Random inputs for parsers: texts that a service may send, with parts replaced.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// What replaces a part: numbers at which arithmetic goes wrong, and bytes with a meaning.
const PARTS: &[&[u8]] = &[
    b"",
    b"0",
    b"-1",
    b"99999999",
    b"9999999999999999",
    b"9223372036854775807",
    b"18446744073709551615",
    b"18446744073709551616",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\0",
    b" ",
    b"\r\n",
    b":",
    b"/",
    b"%",
    b"+",
    b"~",
    b"\xc3\xbc",
];

/// Returns one of the kept inputs, after a few changes or none.
pub(crate) fn altered(kept: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    // Fields of a fixed width keep it if a part is as long as the one that it replaces.
    let len = prop_oneof![Just(None), (0..40_usize).prop_map(Some)];
    let changes = vec((any::<Index>(), len, select(PARTS)), 0..6);
    (select(kept), changes).prop_map(|(input, changes)| {
        let mut bytes = input.as_bytes().to_vec();
        for (at, len, part) in changes {
            let start = at.index(bytes.len() + 1);
            let end = (start + len.unwrap_or(part.len())).min(bytes.len());
            bytes.splice(start..end, part.iter().copied());
        }
        bytes
    })
}

/// Returns an altered input whose bytes are a text.
pub(crate) fn altered_text(kept: &'static [&'static str]) -> impl Strategy<Value = String> {
    altered(kept).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}
