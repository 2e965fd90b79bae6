//! The rules on code that rustc and clippy do not have.
//!
//! | rule | what it rejects |
//! |---|---|
//! | layers | a module that names a layer above its own, or that is in no layer |
//! | stores | a store, or a module that stores share, that names another store |
//! | features | `cfg(feature)` outside the files that are named for it |
//! | types | a type name that a crate defines twice |
//! | scripts | a Lua script whose header does not state keys, arguments, replies |
//!
//! `xtask/tidy.toml` has the layers, the files, and the names that may occur twice.

mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::repository::{self, extension};
use source::{ModulePath, Source};

/// The sources whose layers are checked.
const LIBRARY: &str = "crates/leasehold-core/src/";

/// What the header of a script states; one word of each is enough.
const HEADER: [(&str, &[&str]); 3] = [
    ("keys", &["key"]),
    ("arguments", &["argv", "argument"]),
    ("replies", &["reply", "replies"]),
];

/// The content of `tidy.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    /// From the top to the bottom; each has modules of the library.
    layers: Vec<Vec<String>>,
    /// Modules below `stores` that are not a store.
    shared: Vec<String>,
    /// Files with `cfg(feature)`.
    features: Vec<String>,
    /// Types as `CRATE/NAME`.
    same_names: Vec<String>,
}

/// Fails if the code breaks a rule.
pub(crate) fn check() -> Result<()> {
    let root = repository::root();
    let text = fs::read_to_string(root.join("xtask/tidy.toml"))?;
    let rules: Rules = toml::from_str(&text).context("xtask/tidy.toml is not valid")?;

    let violations = rules.violations(&root)?;
    ensure!(
        violations.is_empty(),
        "step `tidy` failed; to repeat it:\n  cargo xtask tidy\n{}",
        violations.join("\n")
    );
    Ok(())
}

impl Rules {
    fn violations(&self, root: &Path) -> Result<Vec<String>> {
        let mut violations = Vec::new();
        let mut sources = Vec::new();

        for file in repository::files(root)? {
            let path = file.to_string_lossy();
            let read = || fs::read_to_string(root.join(&file)).with_context(|| path.to_string());
            match extension(&path) {
                "lua" => violations.extend(check_header(&path, &read()?)),
                "rs" if is_of_a_crate(&path) => sources.push(Source::parse(&path, &read()?)?),
                _ => {}
            }
        }

        violations.extend(self.check_features(&sources));
        violations.extend(self.check_types(&sources));
        violations.extend(self.check_library(&sources));
        Ok(violations)
    }

    fn check_features(&self, sources: &[Source]) -> Vec<String> {
        let others = sources
            .iter()
            .filter(|source| !self.features.contains(&source.path));

        others
            .flat_map(|source| {
                let lines = source.features.iter();
                lines.map(|line| source.violation(*line, "cfg(feature) belongs elsewhere"))
            })
            .collect()
    }

    fn check_types(&self, sources: &[Source]) -> Vec<String> {
        let mut defined_in = BTreeMap::new();
        let mut violations = Vec::new();

        for source in sources {
            for (line, name) in &source.types {
                let key = format!("{}/{name}", source.krate());
                if self.same_names.contains(&key) {
                    continue;
                }
                if let Some(other) = defined_in.insert(key, &source.path) {
                    let message = format!("type `{name}` is also defined in {other}");
                    violations.push(source.violation(*line, &message));
                }
            }
        }
        violations
    }

    /// Checks the layers of the library and its stores.
    fn check_library(&self, sources: &[Source]) -> Vec<String> {
        let library: Vec<&Source> = sources
            .iter()
            .filter(|source| source.path.starts_with(LIBRARY))
            .collect();
        let exports = library
            .iter()
            .flat_map(|source| source.exports.iter().map(|(name, target)| (name, target)))
            .collect();
        let tests: Vec<&ModulePath> = library.iter().flat_map(|source| &source.tests).collect();
        let stores: BTreeSet<&String> = library
            .iter()
            .filter_map(|source| self.store_in(&source.module))
            .collect();

        let mut violations = Vec::new();
        for source in library {
            let module = &source.module;
            if tests.iter().any(|test| module.starts_with(test)) {
                continue;
            }
            if module
                .first()
                .is_some_and(|_| self.layer_of(module).is_none())
            {
                violations.push(source.violation(1, "it is in no layer of xtask/tidy.toml"));
            }

            for (line, name) in &source.names {
                let target = resolve(name, &exports);
                let message = if self.is_above(&target, module) {
                    format!("`{}` is in a layer above", target.join("::"))
                } else if self.is_of_another_store(&target, module, &stores) {
                    format!("`{}` belongs to another store", target.join("::"))
                } else {
                    continue;
                };
                violations.push(source.violation(*line, &message));
            }
        }
        violations
    }

    fn is_above(&self, target: &[String], module: &[String]) -> bool {
        let layers = self.layer_of(target).zip(self.layer_of(module));

        layers.is_some_and(|(target, own)| target < own)
    }

    /// The number of the layer, 0 at the top.
    fn layer_of(&self, path: &[String]) -> Option<usize> {
        let top = path.first()?;

        self.layers.iter().position(|layer| layer.contains(top))
    }

    fn is_of_another_store(
        &self,
        target: &[String],
        module: &[String],
        stores: &BTreeSet<&String>,
    ) -> bool {
        // The list of all stores is the module `stores` itself.
        let is_below_stores = module.len() > 1 && module[0] == "stores";
        let store = self.store_in(target).filter(|store| stores.contains(store));

        is_below_stores && store.is_some() && store != self.store_in(module)
    }

    /// The store that a path below `stores` may name.
    fn store_in<'a>(&self, path: &'a [String]) -> Option<&'a String> {
        match path {
            [top, name, ..] if top == "stores" && !self.shared.contains(name) => Some(name),
            _ => None,
        }
    }
}

/// Replaces re-exported names by what they stand for.
fn resolve(path: &[String], exports: &BTreeMap<&ModulePath, &ModulePath>) -> ModulePath {
    let mut path = path.to_owned();

    // Re-exports of re-exports are few.
    for _ in 0..4 {
        let export = (1..=path.len()).find_map(|length| {
            let target = exports.get(&path[..length].to_vec())?;
            Some([target, &path[length..]].concat())
        });
        match export {
            Some(target) => path = target,
            None => break,
        }
    }
    path
}

/// Whether a file belongs to a crate, and not to its tests, benchmarks or binaries.
fn is_of_a_crate(path: &str) -> bool {
    path.contains("/src/") && !path.contains("/tests/") && !path.contains("/bin/")
}

/// A script begins with a comment that states keys, arguments and replies; those that do not apply
/// are stated as none.
fn check_header(path: &str, text: &str) -> Vec<String> {
    let header = text
        .lines()
        .take_while(|line| line.starts_with("--"))
        .map(str::to_lowercase)
        .collect::<Vec<_>>()
        .join("\n");

    HEADER
        .iter()
        .filter(|(_, words)| !words.iter().any(|word| header.contains(word)))
        .map(|(part, _)| format!("{path}:1: the header does not state {part}"))
        .collect()
}

#[cfg(test)]
mod tests;
