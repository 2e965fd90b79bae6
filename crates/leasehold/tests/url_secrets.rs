//! No text that was given as a URL makes the library show a part of a user name or a password.
#![cfg(all(feature = "postgres", feature = "redis", feature = "zookeeper"))]
#![allow(missing_docs)]

use std::error::Error as _;
use std::fmt::Debug;

use leasehold::stores::{
    Memory, Postgres, PostgresBuilder, Redis, RedisBuilder, RedisPlain, RedisPlainBuilder,
    Redisson, RedissonBuilder, Redlock, RedlockBuilder, ZooKeeper, ZooKeeperBuilder,
};
use leasehold::{Error, Locks, Result, StoreKind};
use proptest::prelude::*;
use tokio::runtime::Builder;

/// These words are in every user name and in every password here, and nowhere else.
const SECRETS: [&str; 2] = ["quser", "qpass"];

/// Beside the schemes of the stores.
const MISTAKEN_SCHEMES: [&str; 9] = [
    "etcd",
    "unix",
    "REDIS",
    "reids",
    "",
    " redis",
    "\"redis",
    "LEASEHOLD_STORE=redis",
    "redis:quser",
];
/// Mistakes in place of `://`, and the right text.
const SLASHES: [&str; 8] = ["://", ":", ":/", ":///", ":////", "//", "", ":\\\\"];
/// Texts inside of a user name or a password.
const SPECIAL: [&str; 15] = [
    "", "/", "?", "#", "@", ":", "%40", "%2F", "%", " ", "&", "=", ",", "://", "12",
];
const HOSTS: [&str; 8] = [
    "127.0.0.1:1",
    "host",
    "h1,h2,h3",
    "h1,quser:qpass@h2,h3",
    "[::1]:1",
    "h:x",
    "a b",
    "",
];
const ENDS: [&str; 14] = [
    "",
    "/0",
    "/main",
    "/a@b",
    "?db=1",
    "?x=y@z",
    "?x@y=z",
    "?ca=/a@b",
    "?dialect=plain",
    "?dialect=redisson&prefix=a",
    "?dialect=classic",
    "/main?host=/a@b",
    "?direct=a@b:1",
    "#x",
];

/// A user name or a password: words with special characters between them, and perhaps at its ends.
fn secret(word: &'static str) -> impl Strategy<Value = String> + Clone {
    let special = || prop::sample::select(&SPECIAL[..]);
    (special(), special(), special())
        .prop_map(move |(before, within, after)| format!("{before}{word}{within}{word}{after}"))
}

fn user_information() -> impl Strategy<Value = String> {
    let [user, password] = SECRETS.map(secret);
    let both = (user.clone(), password.clone());
    prop_oneof![
        4 => both.prop_map(|(user, password)| format!("{user}:{password}")),
        1 => password.prop_map(|password| format!(":{password}")),
        1 => user,
    ]
}

/// A URL as it is written by mistake, and now and then a right one.
fn mangled_url() -> impl Strategy<Value = String> {
    let known = leasehold::kinds().flat_map(StoreKind::schemes);
    let schemes: Vec<&str> = known.chain(MISTAKEN_SCHEMES).collect();
    let parts = (
        prop::sample::select(schemes),
        prop::sample::select(&SLASHES[..]),
        user_information(),
        prop::sample::select(&HOSTS[..]),
        prop::sample::select(&ENDS[..]),
    );
    let url = parts.prop_map(|(scheme, slashes, user, hosts, end)| {
        format!("{scheme}{slashes}{user}@{hosts}{end}")
    });
    url.prop_filter("an absolute path has no user", |url| !is_folder(url))
}

/// Whether a text names a folder of this machine.
fn is_folder(url: &str) -> bool {
    let path = url.strip_prefix("file:").unwrap_or_default();
    path.starts_with('/') && !path.starts_with("//") || path.starts_with("///")
}

/// Everything that an error may show.
fn shown(error: &Error) -> String {
    let mut shown = format!("{error}\n{error:?}");
    let mut cause = error.source();
    while let Some(inner) = cause {
        shown = format!("{shown}\n{inner}\n{inner:?}");
        cause = inner.source();
    }
    shown
}

fn shown_by<B: Debug>(builder: Result<B>, url: fn(&B) -> String) -> (bool, String) {
    match builder {
        Ok(builder) => (true, format!("{builder:?}\n{}", url(&builder))),
        Err(error) => (false, shown(&error)),
    }
}

/// Returns what a store shows that was opened without the text.
async fn shown_by_open_store(text: &str) -> Vec<String> {
    let locks = Locks::from_store(Memory::new(), text).expect("the background thread runs");
    let error = locks.mutex("").acquire().await.expect_err("no name");

    vec![locks.url().to_owned(), format!("{locks:?}"), shown(&error)]
}

/// Returns what the library shows of a text. It does not connect.
fn shown_of(text: &str) -> String {
    let builders = [
        shown_by(Postgres::builder(text), PostgresBuilder::url),
        shown_by(Redis::builder(text), RedisBuilder::url),
        shown_by(RedisPlain::builder(text), RedisPlainBuilder::url),
        shown_by(Redisson::builder(text), RedissonBuilder::url),
        shown_by(Redlock::builder(text), RedlockBuilder::url),
        shown_by(ZooKeeper::builder(text), ZooKeeperBuilder::url),
    ];
    let is_url = builders.iter().any(|(is_url, _)| *is_url);
    let mut shown_texts = builders.map(|(_, shown)| shown).join("\n");
    // Another text may be the URL of a store that leasehold does not know.
    if text.contains('@') || text.contains("%40") || text.contains("://") {
        shown_texts += Locks::from_store(Memory::new(), text)
            .expect("it runs")
            .url();
    }
    if is_url {
        return shown_texts;
    }

    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let opened = leasehold::open(text).await.map(|_| ());
        let examined = leasehold::examine(text).await.map(|_| ());
        for refused in [opened, examined] {
            let error = refused.expect_err("no builder accepts it");
            assert!(!error.is_unavailable(), "{error:?}");
            shown_texts += &shown(&error);
        }
    });
    shown_texts
}

fn has_secret(shown: &str) -> bool {
    SECRETS.iter().any(|secret| shown.contains(secret))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// Shows G-35.
    #[test]
    fn mangled_url_shows_no_user_information(text in mangled_url()) {
        let shown = shown_of(&text);
        prop_assert!(!has_secret(&shown), "{text}: {shown}");
    }
}

/// Shows G-35.
#[test]
fn user_information_without_a_url_is_not_shown() {
    for text in [
        "quser:qpass@host:6379",
        "redis:quser:qpass@host",
        "redis:/quser:qpass@host",
        "redis//quser:qpass@host",
        "//quser:qpass@host",
        "//quser:qpass%40host",
        "/quser:qpass%40host",
        "/quser:qpass@host",
        "~/quser:qpass@host",
        "quser@host.example:6379",
        "quser:qpass",
        "qpass",
        "redis:qpass",
        "redis://:qpass",
        "redis://quser:qpass",
        "redis://quser%3Aqpass",
        "own://quser:qpass/0",
        "own://quser:qpass]",
        "own://quser:qpass:12",
        "redis://[::1],quser:qpass",
        "redis%3A%2F%2Fquser%3Aqpass%40host",
        "redis://quser%3Aqpass%40host",
        "redis://quser%40host",
        "redis+unix:///quser:qpass@/run/redis.sock",
        "redis://a@quser:12/qpass@host",
        "redis:quser:://qpass@host",
        "redis://quser:1?qpass%40host",
        "redis://quser:1?dialect=qpass%40host",
        "redis://quser:1?dialect=redisson&lock=qpass%40host",
        "redlock://quser:1?dialect=qpass%40host",
        "memory:quser:qpass@host",
        "system:quser:qpass@host",
        "file:quser:qpass@host",
        "file://quser:qpass@host/locks",
        "file:/locks?quser:qpass@host",
    ] {
        let shown = shown_of(text);
        assert!(!has_secret(&shown), "{text}: {shown}");
    }
}

/// Shows G-35.
#[tokio::test]
async fn store_that_was_built_shows_its_url_without_user_information() {
    for (url, expected) in [
        (
            "redis://quser:qpass@h:1?dialect=plain",
            "…@h:1?dialect=plain",
        ),
        ("redlock://quser:qpass@a,b:1,c", "…@a,b:1,c"),
        ("own://quser:qpass@h", "…@h"),
        ("own:quser:qpass@h", "…@h"),
        ("redis://qpass@quser:12/qpass@h", "…@h"),
        ("own://quser@a?qpass%40h", "…@h"),
        ("file:/a@b?mode=0660", "file:/a@b?mode=0660"),
        ("own:a", "own:a"),
        ("own://[::1],h:1/a:b", "own://[::1],h:1/a:b"),
        ("memory:", "memory:"),
    ] {
        let locks = Locks::from_store(Memory::new(), url).expect("the background thread runs");
        assert_eq!(locks.url(), expected);

        for shown in shown_by_open_store(url).await {
            assert!(!has_secret(&shown), "{url}: {shown}");
        }
    }
}

/// Another folder or node than meant would exclude nobody.
///
/// Shows G-35.
#[tokio::test]
async fn white_space_and_control_characters_in_a_url_are_refused_by_name() {
    let examples = leasehold::kinds().flat_map(|kind| kind.help);
    let urls = examples
        .map(|(url, _)| *url)
        .chain(["memory:", "system:?mode=0660"]);
    for url in urls.filter(|url| !url.contains('…')) {
        for (stray, name) in [
            ("\n", "a line feed (U+000A)"),
            ("\r", "a carriage return (U+000D)"),
            (" ", "a space (U+0020)"),
            ("\t", "a tab (U+0009)"),
            ("\u{1b}", "an invisible character (U+001B)"),
        ] {
            let (before, behind) = url.split_at(url.len() - 1);
            let within = format!("{before}{stray}{behind}");
            for text in [format!("{url}{stray}"), format!("{stray}{url}"), within] {
                // The parts of a URL without a server are checked one by one.
                let is_within = stray == " " && text.trim() == text && !text.contains("://");
                if !is_within {
                    assert_refused(&text, name).await;
                }
            }
        }
    }
    assert_refused("redis://host # the locks of all machines", "a comment").await;
    assert_refused("file:/nowhere # the locks", "a comment").await;
}

async fn assert_refused(text: &str, part: &str) {
    let lazy = leasehold::open_lazy(text).map(|_| ());
    let opened = leasehold::open(text).await.map(|_| ());
    let examined = leasehold::examine(text).await.map(|_| ());
    for refused in [lazy, opened, examined] {
        let error = refused.expect_err(text);
        let shown = error.to_string();
        assert!(
            error.is_invalid() && shown.contains(part),
            "{text:?}: {shown}"
        );
        assert_eq!(shown.lines().count(), 1, "{shown}");
    }
}

/// Shows G-35.
#[test]
fn white_space_in_the_url_of_a_builder_is_refused_by_name() {
    for blank in ["\n", " "] {
        let part = if blank == " " {
            "a space ("
        } else {
            "a line feed ("
        };
        let url = |url: &str| format!("{url}{blank}");
        for refused in [
            Redis::builder(&url("redis://h")).map(|_| ()),
            Redis::builder(&url("redis+unix:///run/redis.sock")).map(|_| ()),
            RedisPlain::builder(&url("redis://h?dialect=plain")).map(|_| ()),
            Redisson::builder(&url("redis://h?dialect=redisson&prefix=a")).map(|_| ()),
            Redlock::builder(&url("redlock://a,b,c")).map(|_| ()),
            Postgres::builder(&url("postgres://h/a")).map(|_| ()),
            ZooKeeper::builder(&url("zookeeper://h/locks")).map(|_| ()),
        ] {
            let error = refused.expect_err("it names another place");
            assert!(
                error.is_invalid() && error.to_string().contains(part),
                "{error}"
            );
        }
    }
}
