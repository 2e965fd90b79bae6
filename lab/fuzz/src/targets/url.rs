//! URLs of users, whose passwords no error shows.

use std::fmt::Debug;

use leasehold::stores::{Redis, RedisPlain, Redisson, Redlock, ZooKeeper};
use leasehold::{Error, Result};

/// A password that the kept inputs contain.
const PASSWORD: &str = "sEcReT";

pub(super) fn run(bytes: &[u8]) {
    let Ok(url) = std::str::from_utf8(bytes) else {
        return;
    };
    check(url, Redis::builder(url));
    check(url, Redlock::builder(url));
    check(url, Redisson::builder(url));
    check(url, RedisPlain::builder(url));
    check(url, ZooKeeper::builder(url));
}

fn check<T: Debug>(url: &str, parsed: Result<T>) {
    if let Err(error) = parsed
        && has_password(url)
    {
        let shown = shown(&error);
        assert!(!shown.contains(PASSWORD), "{url:?} is shown: {shown}");
    }
}

fn shown(error: &Error) -> String {
    format!("{error} {error:?}")
}

/// Whether the password comes directly after a user.
fn has_password(url: &str) -> bool {
    let authority = url.split_once("://").map_or("", |(_, rest)| rest);
    let is_only_there = url.matches(PASSWORD).count() == 1;
    is_only_there && authority.starts_with(&format!("me:{PASSWORD}"))
}
