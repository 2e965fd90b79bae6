//! Rules on the sources of each crate: features and names of types.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use anyhow::Result;
use regex::Regex;
use syn::visit::Visit;

use super::passages::code_of;
use super::references::{attributes, is_test};
use super::{Rule, Source, Violation, parse};
use crate::repository::extension;

/// A condition on a feature.
static FEATURE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\bcfg(?:_attr)?!?\([^;{}\]]*?\bfeature\s*=").expect("the pattern is valid")
});

/// Rejects `cfg(feature)` in sources of crates outside `files`.
pub(super) fn check_features(sources: &[Source], files: &[String]) -> Vec<Violation> {
    let mut violations = Vec::new();

    for source in library_sources(sources).filter(|source| !files.contains(&source.path)) {
        let code = code_of(&source.text);
        for condition in FEATURE.find_iter(&code) {
            let line = code[..condition.start()].matches('\n').count() + 1;
            let message = "cfg(feature) belongs elsewhere".to_owned();
            violations.push(source.violation(Rule::Features, line, message));
        }
    }
    violations
}

/// Rejects a type name that modules of one crate define twice.
pub(super) fn check_types(sources: &[Source]) -> Result<Vec<Violation>> {
    let mut first: BTreeMap<(String, String), String> = BTreeMap::new();
    let mut violations = Vec::new();

    for source in library_sources(sources) {
        let (krate, _) = source
            .path
            .split_once("/src/")
            .expect("it is a source of a library");
        let krate = krate.rsplit('/').next().unwrap_or(krate);

        let mut types = Types::default();
        types.visit_file(&parse(source)?);
        for (name, line) in types.0 {
            let key = (krate.to_owned(), name.clone());
            match first.get(&key) {
                None => {
                    first.insert(key, source.path.clone());
                }
                Some(other) => {
                    let message = format!("type `{name}` is also defined in {other}");
                    let key = format!("{krate}/{name}");
                    let violation = source.violation(Rule::Types, line, message);
                    violations.push(Violation { key, ..violation });
                }
            }
        }
    }
    Ok(violations)
}

/// The names of types outside tests, with their lines.
#[derive(Default)]
struct Types(Vec<(String, usize)>);

impl<'ast> Visit<'ast> for Types {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_test(attributes(item)) {
            return;
        }

        let name = match item {
            syn::Item::Enum(item) => Some(&item.ident),
            syn::Item::Struct(item) => Some(&item.ident),
            syn::Item::Trait(item) => Some(&item.ident),
            syn::Item::Type(item) => Some(&item.ident),
            syn::Item::Union(item) => Some(&item.ident),
            _ => None,
        };
        self.0
            .extend(name.map(|name| (name.to_string(), name.span().start().line)));
        syn::visit::visit_item(self, item);
    }
}

/// Sources of crates, without their tests, benchmarks and binaries.
fn library_sources(sources: &[Source]) -> impl Iterator<Item = &Source> {
    sources.iter().filter(|source| {
        let path = &source.path;
        let is_source = extension(path) == "rs" && path.contains("/src/");

        is_source && !path.contains("/tests/") && !path.contains("/bin/")
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::source;
    use super::*;

    #[test]
    fn feature_outside_named_files_is_a_violation() {
        let text = "#[cfg(feature = \"a\")]\nfn a() {}\n\nfn b() -> bool {\n    \
                    cfg!(feature = \"b\")\n}\n#[cfg(test)]\nfn c() {}\n";
        let sources = [source("a/src/b.rs", text), source("a/tests/c.rs", text)];

        let violations = check_features(&sources, &[]);
        let lines: Vec<usize> = violations.iter().map(|violation| violation.line).collect();

        assert_eq!(lines, [1, 5]);
        assert!(check_features(&sources, &["a/src/b.rs".to_owned()]).is_empty());
    }

    #[test]
    fn type_name_that_a_crate_defines_twice_is_a_violation() -> Result<()> {
        let sources = [
            source("crates/a/src/b.rs", "struct Name;"),
            source("crates/a/src/c.rs", "\npub enum Name {}"),
        ];

        let violations = check_types(&sources)?;

        assert_eq!(violations.len(), 1);
        assert_eq!(violations[0].key, "a/Name");
        assert_eq!(violations[0].line, 2);
        Ok(())
    }

    #[test]
    fn type_name_in_another_crate_or_in_tests_is_accepted() -> Result<()> {
        let sources = [
            source(
                "crates/a/src/b.rs",
                "struct Name; impl A for Name { type Item = u8; }",
            ),
            source(
                "crates/a/src/c.rs",
                "#[cfg(test)] mod tests { struct Name; }",
            ),
            source("crates/a/src/d.rs", "impl A for B { type Item = u8; }"),
            source("crates/a/tests/e.rs", "struct Name;"),
            source("crates/b/src/b.rs", "struct Name;"),
        ];

        assert_eq!(check_types(&sources)?, []);
        Ok(())
    }
}
