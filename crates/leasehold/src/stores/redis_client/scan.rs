//! Listing the names of locks in use.

use std::collections::BTreeSet;
use std::time::Duration;

use super::link::Link;
use super::reply::{text, with_reply_timeout};
use super::reply_error;
use super::script::Script;
use crate::{Name, Result};

/// Returns the first `count_max` names in order, of the keys that match `pattern` and that `script`
/// reports as in use. It finds keys of type string only.
pub(in crate::stores) async fn list(
    link: &Link,
    pattern: &str,
    script: &Script,
    timeout: Duration,
    name_of: impl Fn(&str) -> Option<Name>,
    count_max: usize,
) -> Result<BTreeSet<Name>> {
    let mut names = BTreeSet::new();
    let mut cursor = "0".to_owned();
    loop {
        let session = link.session(timeout).await?;
        let mut request = redis::cmd("SCAN");
        request
            .arg(&cursor)
            .arg("MATCH")
            .arg(pattern)
            .arg("COUNT")
            .arg(1000)
            .arg("TYPE")
            .arg("string");
        let in_flight = async {
            session
                .send(&request)
                .await
                .map_err(reply_error::store_error)
        };
        let reply = with_reply_timeout(&session, timeout, in_flight).await?;
        let (next, keys): (String, Vec<Vec<u8>>) =
            redis::from_redis_value(reply).map_err(|_| reply_error::protocol_error())?;
        // A key that is not UTF-8 is not the key of a name.
        let keys: Vec<&str> = keys
            .iter()
            .filter_map(|key| std::str::from_utf8(key).ok())
            .collect();
        if !keys.is_empty() {
            let in_use = text(
                with_reply_timeout(&session, timeout, script.run(&session, &keys, &[])).await?,
            )?;
            let in_use = keys
                .iter()
                .zip(in_use.bytes())
                .filter(|(_, used)| *used == b'1');
            names.extend(in_use.filter_map(|(key, _)| name_of(key)));
            // Keep the first names, so that the set is bounded.
            while names.len() > count_max {
                names.pop_last();
            }
        }
        if next == "0" {
            return Ok(names);
        }
        cursor = next;
    }
}
