//! Tests of modules.

use std::collections::BTreeMap;

use super::super::tests::source;
use super::*;

fn library() -> Library {
    let text = "
        sources = 'a/src'
        stores = ['file', 'redis', 'redis/redlock']
        shared = ['words']
        layers = [
            { name = 'API', modules = ['lock'] },
            { name = 'engine', modules = ['engine'] },
            { name = 'stores', modules = ['stores'] },
            { name = 'contract', modules = ['claim'] },
        ]";
    toml::from_str(text).expect("the sample is valid")
}

/// The violations of a library in which one file has this text.
fn check(path: &str, text: &str) -> Vec<String> {
    let lib = "mod lock; mod engine; mod stores; mod claim;\npub use claim::Claim;\n\
               pub use lock::Lock;\n";
    let mut files = BTreeMap::from([
        ("a/src/lib.rs", lib),
        ("a/src/lock.rs", ""),
        ("a/src/engine.rs", "#[cfg(test)] mod tests;"),
        (
            "a/src/stores.rs",
            "pub use file::File; pub use redis::Redis; mod words;",
        ),
        ("a/src/stores/words.rs", ""),
        ("a/src/claim.rs", ""),
    ]);
    files.insert(path, text);

    let sources: Vec<Source> = files
        .into_iter()
        .map(|(path, text)| source(path, text))
        .collect();
    let violations = check_library(&sources, &library()).expect("the sample is valid");
    violations
        .into_iter()
        .map(|violation| violation.to_string())
        .collect()
}

#[test]
fn module_that_names_a_layer_above_is_a_violation() {
    let violations = check("a/src/engine.rs", "\nuse crate::lock::Lock;\n");
    assert_eq!(
        violations,
        [
            "a/src/engine.rs:2: layers: `engine` names `lock::Lock`, which is above it: \
          API is above engine"
        ]
    );

    for text in [
        "use crate::Lock;",
        "use crate::{Claim, Lock};",
        "use super::lock;",
        "fn a() { crate::Lock::new(); }",
        "fn a() { vec![crate::Lock::new()]; }",
        "fn a(b: super::Lock) {}",
        "mod b { use super::super::Lock; }",
    ] {
        assert_eq!(check("a/src/engine.rs", text).len(), 1, "{text}");
    }
}

#[test]
fn module_that_names_layers_below_or_its_own_is_accepted() {
    for text in [
        "use crate::stores::File;",
        "use crate::Claim;",
        "use self::lock::Lock;",
        "#[cfg(test)] mod tests { use crate::Lock; }",
        "mod b { use super::Lock; }",
    ] {
        assert_eq!(check("a/src/engine.rs", text), [""; 0], "{text}");
    }
    assert_eq!(check("a/src/lock.rs", "use crate::engine::a;"), [""; 0]);
    assert_eq!(check("a/src/engine/tests.rs", "use crate::Lock;"), [""; 0]);
}

#[test]
fn module_without_a_layer_and_layer_without_a_module_are_violations() {
    let violations = check("a/src/new.rs", "");
    assert_eq!(violations.len(), 1);
    assert!(
        violations[0].contains("`new` is in no layer"),
        "{violations:?}"
    );

    let sources = [source("a/src/lib.rs", "")];
    let violations = check_library(&sources, &library()).expect("the sample is valid");
    assert_eq!(violations.len(), 4, "{violations:?}");
    assert!(
        violations[0].message.contains("`claim` does not exist"),
        "{violations:?}"
    );
}

#[test]
fn store_that_names_another_store_is_a_violation() {
    let violations = check(
        "a/src/stores/redis/link.rs",
        "use super::super::file::folder;",
    );
    assert_eq!(
        violations,
        ["a/src/stores/redis/link.rs:1: stores: `stores::redis::link` names the store `file`"]
    );

    assert_eq!(
        check("a/src/stores/redis.rs", "use crate::stores::File;").len(),
        1
    );
    assert_eq!(
        check("a/src/stores/words.rs", "use super::redis::Link;").len(),
        1
    );
    let path = "a/src/stores/redis/redlock.rs";
    assert_eq!(check(path, "use super::link::Link;").len(), 1);
}

#[test]
fn store_that_names_itself_or_a_shared_module_is_accepted() {
    let text = "use super::super::words; use super::record; use crate::stores::Redis;";

    assert_eq!(check("a/src/stores/redis/link.rs", text), [""; 0]);
}

#[test]
fn unlisted_module_below_stores_is_a_violation() {
    assert_eq!(
        check("a/src/stores/new.rs", ""),
        [
            "a/src/stores/new.rs:1: stores: `new` is neither in `stores` nor in `shared` of \
          xtask/tidy.toml"
        ]
    );
    assert_eq!(check("a/src/stores/file.rs", ""), [""; 0]);
    assert_eq!(check("a/src/stores/file/new.rs", ""), [""; 0]);
}
