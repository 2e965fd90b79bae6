//! The names of the locks that `docs/four-conditions.md` compares.

use anyhow::Result;

use crate::usage::check_names;

/// The name on the command line, the title in the document, and the lab's own identifier.
struct Baseline {
    name: &'static str,
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "a test compares it with the document")
    )]
    title: &'static str,
    kind: &'static str,
}

const fn baseline(name: &'static str, title: &'static str, kind: &'static str) -> Baseline {
    Baseline { name, title, kind }
}

const BASELINES: [Baseline; 13] = [
    baseline("setnx", "SETNX; DEL", "Setnx"),
    baseline("setnx-expire", "SETNX, then EXPIRE; DEL", "SetnxExpire"),
    baseline("set-nx-px", "SET NX PX; DEL", "SetDel"),
    baseline("set-nx-ex", "SET NX EX; compare, delete", "CompareDelete"),
    baseline(
        "exists-setex",
        "EXISTS + SETEX in Lua; compare, delete",
        "ExistsSetex",
    ),
    baseline("redisson", "Redisson's RLock", "Redisson"),
    baseline("redlock-steps", "Redlock's five steps", "Redlock"),
    baseline("zookeeper-recipe", "ZooKeeper's recipe", "Recipe"),
    baseline("file", "**leasehold file:**", "LeaseholdFile"),
    baseline("redis", "**leasehold redis:**", "LeaseholdRedis"),
    baseline(
        "redis-plain",
        "**leasehold redis: plain**",
        "LeaseholdPlain",
    ),
    baseline("redlock", "**leasehold redlock:**", "LeaseholdRedlock"),
    baseline(
        "zookeeper",
        "**leasehold zookeeper:**",
        "LeaseholdZooKeeper",
    ),
];

/// The lab's identifiers of the named baselines; an empty list means all.
pub(crate) fn kinds_of(names: &[String]) -> Result<Vec<&'static str>> {
    check_names("baseline", names, &BASELINES.map(|baseline| baseline.name))?;

    let is_named = |baseline: &&Baseline| names.iter().any(|name| name == baseline.name);
    Ok(BASELINES
        .iter()
        .filter(is_named)
        .map(|baseline| baseline.kind)
        .collect())
}

/// All names, for the help text.
pub(crate) fn names() -> String {
    BASELINES.map(|baseline| baseline.name).join(", ")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use anyhow::Result;

    use super::*;
    use crate::repository;

    #[test]
    fn names_are_mapped_to_identifiers_of_the_lab() -> Result<()> {
        assert_eq!(
            kinds_of(&["setnx".into(), "redis".into()])?,
            ["Setnx", "LeaseholdRedis"]
        );
        assert!(kinds_of(&[])?.is_empty());
        Ok(())
    }

    #[test]
    fn unknown_name_is_rejected_with_all_names() {
        let error = kinds_of(&["LeaseholdRedis".into()]).expect_err("it is a private identifier");

        assert!(error.to_string().contains("\n  redis-plain\n"), "{error}");
    }

    #[test]
    fn baselines_are_the_locks_of_the_document() -> Result<()> {
        let page = fs::read_to_string(repository::root().join("docs/four-conditions.md"))?;
        let table = page
            .lines()
            .skip_while(|line| !line.starts_with("| lock |"))
            .skip(2);
        let titles: Vec<&str> = table
            .map_while(|row| row.strip_prefix("| ")?.split(" | ").next())
            .collect();

        assert_eq!(titles, BASELINES.map(|baseline| baseline.title));
        Ok(())
    }

    #[test]
    fn identifiers_exist_in_the_lab() -> Result<()> {
        let root = repository::root();
        let mut sources = String::new();
        for file in repository::files(&root)? {
            let is_source = file.extension().is_some_and(|extension| extension == "rs");
            if is_source && file.starts_with("lab/src") {
                sources += &fs::read_to_string(root.join(file))?;
            }
        }

        for baseline in BASELINES {
            let variant = format!("::{} => ", baseline.kind);
            assert!(
                sources.contains(&variant),
                "the lab does not know {}",
                baseline.kind
            );
        }
        Ok(())
    }
}
