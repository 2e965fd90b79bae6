//! Listing the names of locks in use.

use std::collections::BTreeSet;

use super::link::Link;
use super::reply_error::protocol_error;
use super::script::{NO_TEXTS, Script};
use super::session::{READ_TIMEOUT, decode, reply_timeout, with_reply_timeout};
use leasehold_core::{Name, Result};

/// How many keys the server looks at for one reply.
const PAGE: &str = "1000";

/// The keys to list.
#[derive(Clone, Copy)]
pub(crate) struct Scan<'a> {
    pub(crate) pattern: &'a str,
    /// The type of the keys, as Redis names it.
    pub(crate) key_type: &'static str,
    /// Lists those in use: a `list_script!`.
    pub(crate) script: &'static Script,
    /// How many names are listed.
    pub(crate) count_max: usize,
}

/// Returns the pattern of the keys that begin with `prefix`.
pub(crate) fn pattern_of(prefix: &str) -> String {
    let mut pattern = String::with_capacity(prefix.len() + 1);
    for c in prefix.chars() {
        if "*?[]^-\\".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern + "*"
}

/// Returns the names of the keys that are in use: the first ones in order.
pub(crate) async fn list(
    link: &Link,
    scan: Scan<'_>,
    name_of: impl Fn(&str) -> Option<Name>,
) -> Result<BTreeSet<Name>> {
    let timeout = reply_timeout(READ_TIMEOUT);
    let mut names = BTreeSet::new();
    let mut cursor = "0".to_owned();
    loop {
        let session = link.session(timeout).await?;
        let arguments = [&*cursor, scan.pattern, PAGE, scan.key_type];
        let running = scan.script.run(&session, NO_TEXTS, &arguments);
        let page = with_reply_timeout(&session, timeout, running).await?;
        let page: Vec<Vec<u8>> = decode(page)?;

        // The key of a name is always UTF-8.
        let mut texts = page.iter().map(|text| std::str::from_utf8(text).ok());
        let next = texts.next().flatten().ok_or_else(protocol_error)?;
        names.extend(texts.flatten().filter_map(&name_of));

        // Keep the first names, so that the set is bounded.
        while names.len() > scan.count_max {
            names.pop_last();
        }
        if next == "0" {
            return Ok(names);
        }
        next.clone_into(&mut cursor);
    }
}
