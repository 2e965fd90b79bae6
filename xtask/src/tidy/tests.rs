//! Tests of the rules.

use super::*;

fn rules() -> Rules {
    let text = "
        layers = [['lock'], ['engine'], ['stores'], ['claim']]
        shared = ['words']
        features = ['a/src/named.rs']
        same_names = ['a/Both']";
    toml::from_str(text).expect("the sample is valid")
}

/// The violations of a library in which one file has this text.
fn check(path: &str, text: &str) -> Vec<String> {
    let mut files = BTreeMap::from([
        (
            "lib",
            "mod lock; mod engine; pub use claim::Claim; pub use lock::Lock;",
        ),
        ("lock", ""),
        ("engine", "#[cfg(test)] mod tests;"),
        ("stores", "pub use file::File; pub(crate) use redis::Redis;"),
        ("stores/file", ""),
        ("stores/redis", ""),
        ("stores/words", ""),
        ("claim", ""),
    ]);
    files.insert(path, text);

    let sources: Vec<Source> = files
        .iter()
        .map(|(path, text)| source(&format!("{LIBRARY}{path}.rs"), text))
        .collect();
    rules().check_library(&sources)
}

fn source(path: &str, text: &str) -> Source {
    Source::parse(path, text).expect("the sample is valid")
}

#[test]
fn module_that_names_a_layer_above_is_rejected() {
    assert_eq!(
        check("engine", "\nuse crate::lock::Lock;\n"),
        ["crates/leasehold-core/src/engine.rs:2: `lock::Lock` is in a layer above"]
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
        assert_eq!(check("engine", text).len(), 1, "{text}");
    }

    for text in [
        "use crate::stores::File;",
        "use crate::Claim;",
        "use self::lock::Lock;",
        "#[cfg(test)] mod tests { use crate::Lock; }",
        "mod b { use super::Lock; }",
    ] {
        assert_eq!(check("engine", text), [""; 0], "{text}");
    }
    assert_eq!(check("engine/tests", "use crate::Lock;"), [""; 0]);
    assert_eq!(check("new", "").len(), 1, "it is in no layer");
}

#[test]
fn store_that_names_another_store_is_rejected() {
    assert_eq!(
        check("stores/redis/link", "use super::super::file::folder;"),
        ["crates/leasehold-core/src/stores/redis/link.rs:1: \
             `stores::file::folder` belongs to another store"]
    );
    assert_eq!(check("stores/redis", "use crate::stores::File;").len(), 1);
    assert_eq!(check("stores/words", "use super::redis::Link;").len(), 1);

    let text = "use super::super::words; use super::record; use crate::stores::Redis;";
    assert_eq!(check("stores/redis/link", text), [""; 0]);
}

#[test]
fn feature_outside_named_files_is_rejected() {
    let text = "// cfg(feature = \"a\")\n#[cfg(all(unix, feature = \"a\"))]\nfn a() {}\n\
                fn b() -> bool {\n    cfg!(feature = \"b\")\n}\n#[cfg(test)]\nfn c() {}\n";
    let check = |path| rules().check_features(&[source(path, text)]);

    let found = check("a/src/b.rs");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].starts_with("a/src/b.rs:2:") && found[1].starts_with("a/src/b.rs:5:"),
        "{found:?}"
    );
    assert!(check("a/src/named.rs").is_empty());
}

#[test]
fn type_name_that_a_crate_defines_twice_is_rejected() {
    let check = |path, text| {
        let first = source("x/a/src/b.rs", "struct Name; enum Both {}");
        rules().check_types(&[first, source(path, text)])
    };

    assert_eq!(check("x/a/src/c.rs", "\npub enum Name {}").len(), 1);
    for text in [
        "struct Both;",
        "#[cfg(test)] mod tests { struct Name; }",
        "impl A for B { type Name = u8; }",
    ] {
        assert!(check("x/a/src/c.rs", text).is_empty(), "{text}");
    }
    assert!(check("x/b/src/c.rs", "struct Name;").is_empty());
}

#[test]
fn script_whose_header_is_incomplete_is_rejected() {
    let check = |text| check_header("a.lua", text);

    assert!(check("-- Keys: none\n-- ARGV[1]: x\n-- Replies: 1\nreturn 1\n").is_empty());
    assert_eq!(
        check("-- KEYS[1]: x\n-- Arguments: none\nreturn 1\n-- Reply: 1\n"),
        ["a.lua:1: the header does not state replies"]
    );
    assert_eq!(check("local keys, arguments, reply\n").len(), 3);
}
