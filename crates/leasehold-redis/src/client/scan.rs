//! Listing the names of locks in use.

use std::collections::BTreeSet;

use super::link::Link;
use super::redirect::Redirect;
use super::script::Script;
use super::session::Session;
use super::session::{READ_TIMEOUT, decode, reply_timeout, with_reply_timeout};
use leasehold_core::{Name, Result};

/// How many keys the server looks at for one reply. It may return a few more.
const PAGE: usize = 1000;

/// The keys to list.
#[derive(Clone, Copy)]
pub(crate) struct Scan<'a> {
    pub(crate) pattern: &'a str,
    /// The type of the keys, as Redis names it.
    pub(crate) key_type: &'static str,
    /// Reports which keys are in use.
    pub(crate) script: &'static Script,
    /// How many names are listed.
    pub(crate) count_max: usize,
    /// How many keys one script takes. In a cluster they must be of one slot.
    pub(crate) batch: usize,
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
        let page = with_reply_timeout(&session, timeout, page_at(&session, &cursor, scan)).await?;

        for keys in page.keys().chunks(scan.batch) {
            let running = scan.script.run(&session, keys, &[]);
            let in_use = match with_reply_timeout(&session, timeout, running).await {
                // The master to which the key moves lists it too.
                Err(error) if Redirect::of(&error).is_some() => continue,
                in_use => decode::<String>(in_use?)?,
            };
            let replies = keys.iter().zip(in_use.bytes());
            let in_use = replies.filter(|(_, used)| *used == b'1');
            names.extend(in_use.filter_map(|(key, _)| name_of(key)));
        }

        // Keep the first names, so that the set is bounded.
        while names.len() > scan.count_max {
            names.pop_last();
        }
        if page.next == "0" {
            return Ok(names);
        }
        cursor = page.next;
    }
}

/// A part of the keys that match a pattern.
struct Page {
    /// Where the next part begins; `0` after the last one.
    next: String,
    keys: Vec<Vec<u8>>,
}

impl Page {
    /// Returns the keys that are UTF-8. The key of a name always is.
    fn keys(&self) -> Vec<&str> {
        let keys = self.keys.iter();
        keys.filter_map(|key| std::str::from_utf8(key).ok())
            .collect()
    }
}

async fn page_at(session: &Session, cursor: &str, scan: Scan<'_>) -> Result<Page> {
    let mut request = redis::cmd("SCAN");
    request.arg(cursor).arg("MATCH").arg(scan.pattern);
    request.arg("COUNT").arg(PAGE);
    request.arg("TYPE").arg(scan.key_type);

    let (next, keys) = session.request(&request).await?;
    Ok(Page { next, keys })
}
