//! Rules on the modules of crates: layers, stores, features and names of types.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use quote::ToTokens;
use serde::Deserialize;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::{Rule, Source, Violation};
use crate::repository::extension;

/// The library whose layers are checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Library {
    /// The folder of its sources.
    sources: String,
    /// Modules below `stores` that are a store, as paths. What else is there is shared by stores.
    stores: Vec<String>,
    /// From the top to the bottom.
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Layer {
    name: String,
    modules: Vec<String>,
}

/// The path of a module or an item from the root of its crate.
type ModulePath = Vec<String>;

/// Rejects `cfg(feature)` in sources of crates outside `files`.
pub(super) fn check_features(sources: &[Source], files: &[String]) -> Result<Vec<Violation>> {
    let mut violations = Vec::new();

    for source in sources
        .iter()
        .filter(|source| is_library_source(&source.path))
    {
        if files.contains(&source.path) {
            continue;
        }
        let mut found = FeatureLines::default();
        found.visit_file(&parse(source)?);
        violations.extend(found.0.into_iter().map(|line| {
            source.violation(
                Rule::Features,
                line,
                "cfg(feature) belongs elsewhere".to_owned(),
            )
        }));
    }
    Ok(violations)
}

/// Rejects a type name that modules of one crate define twice.
pub(super) fn check_types(sources: &[Source]) -> Result<Vec<Violation>> {
    let mut first: BTreeMap<(String, String), String> = BTreeMap::new();
    let mut violations = Vec::new();

    for source in sources
        .iter()
        .filter(|source| is_library_source(&source.path))
    {
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

/// Rejects a store that names another store, and a module that names a layer above its own.
pub(super) fn check_library(sources: &[Source], library: &Library) -> Result<Vec<Violation>> {
    let folder = format!("{}/", library.sources);
    let mut modules = Vec::new();
    for source in sources
        .iter()
        .filter(|source| extension(&source.path) == "rs")
    {
        if let Some(path) = source.path.strip_prefix(&folder) {
            modules.push(Module {
                source,
                path: module_of(path),
                file: parse(source)?,
            });
        }
    }

    let map = Map::of(&modules);
    let mut violations = library.check_list(&modules)?;
    for module in modules.iter().filter(|module| !map.is_test(&module.path)) {
        let mut references = References::of(&module.path);
        references.visit_file(&module.file);

        let seen: BTreeSet<(usize, ModulePath)> = references
            .found
            .into_iter()
            .map(|found| (found.0, map.resolve(found.1)))
            .collect();
        for (line, target) in seen {
            violations.extend(library.check_layer(module, line, &target));
            violations.extend(library.check_store(module, line, &target));
        }
    }
    Ok(violations)
}

impl Library {
    /// Every module is in a layer, and every listed module exists.
    fn check_list(&self, modules: &[Module<'_>]) -> Result<Vec<Violation>> {
        let root = modules.iter().find(|module| module.path.is_empty());
        let root = root.context("the library has no lib.rs")?.source;
        let tops: BTreeSet<&String> = modules
            .iter()
            .filter_map(|module| module.path.first())
            .collect();
        let listed: BTreeSet<&String> = self
            .layers
            .iter()
            .flat_map(|layer| &layer.modules)
            .collect();

        let unlisted = tops
            .difference(&listed)
            .map(|name| format!("`{name}` is in no layer"));
        let absent = listed
            .difference(&tops)
            .map(|name| format!("`{name}` does not exist"));
        let messages = unlisted.chain(absent);
        Ok(messages
            .map(|message| root.violation(Rule::Layers, 1, format!("{message}: xtask/tidy.toml")))
            .collect())
    }

    fn check_layer(
        &self,
        module: &Module<'_>,
        line: usize,
        target: &[String],
    ) -> Option<Violation> {
        let own = self.layer_of(&module.path)?;
        let named = self.layer_of(target)?;
        if named >= own {
            return None;
        }

        let message = format!(
            "`{}` names `{}`, which is above it: {} is above {}",
            module.path.join("::"),
            target.join("::"),
            self.layers[named].name,
            self.layers[own].name
        );
        Some(module.source.violation(Rule::Layers, line, message))
    }

    fn check_store(
        &self,
        module: &Module<'_>,
        line: usize,
        target: &[String],
    ) -> Option<Violation> {
        let is_list_of_stores = module.path.len() < 2;
        if module.path.first()? != "stores" || is_list_of_stores {
            return None;
        }

        let named = self.store_of(target)?;
        if self.store_of(&module.path) == Some(named) {
            return None;
        }
        let message = format!("`{}` names the store `{named}`", module.path.join("::"));
        Some(module.source.violation(Rule::Stores, line, message))
    }

    /// The number of the layer, 0 at the top.
    fn layer_of(&self, path: &[String]) -> Option<usize> {
        let top = path.first()?;

        self.layers
            .iter()
            .position(|layer| layer.modules.contains(top))
    }

    /// The innermost store that the path is in.
    fn store_of(&self, path: &[String]) -> Option<&str> {
        let (_, inner) = path.split_first().filter(|(first, _)| *first == "stores")?;
        let is_in = |store: &&String| {
            let parts: Vec<&str> = store.split('/').collect();
            inner.len() >= parts.len() && inner.iter().zip(&parts).all(|(one, other)| one == other)
        };

        self.stores
            .iter()
            .filter(is_in)
            .max_by_key(|store| store.len())
            .map(String::as_str)
    }
}

struct Module<'a> {
    source: &'a Source,
    path: ModulePath,
    file: syn::File,
}

/// `stores/redis/link.rs` is `stores::redis::link`, and `lib.rs` is the root.
fn module_of(path: &str) -> ModulePath {
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
    let parts = path.split('/').filter(|part| *part != "lib");

    parts.map(str::to_owned).collect()
}

/// Sources of a crate, without its tests, benchmarks and binaries.
fn is_library_source(path: &str) -> bool {
    let is_source = extension(path) == "rs" && path.contains("/src/");

    is_source && !path.contains("/tests/") && !path.contains("/bin/")
}

fn parse(source: &Source) -> Result<syn::File> {
    syn::parse_file(&source.text).with_context(|| source.path.clone())
}

/// What re-exports mean, and which modules are tests.
#[derive(Default)]
struct Map {
    exports: BTreeMap<ModulePath, ModulePath>,
    tests: BTreeSet<ModulePath>,
}

impl Map {
    fn of(modules: &[Module<'_>]) -> Self {
        let mut map = Self::default();

        for module in modules {
            for item in &module.file.items {
                match item {
                    syn::Item::Use(item) if !matches!(item.vis, syn::Visibility::Inherited) => {
                        map.add_exports(&module.path, &item.tree);
                    }
                    syn::Item::Mod(item) if is_test(&item.attrs) => {
                        map.tests.insert(extended(&module.path, &item.ident));
                    }
                    _ => {}
                }
            }
        }
        map
    }

    fn add_exports(&mut self, module: &[String], tree: &syn::UseTree) {
        let mut leaves = Vec::new();
        flatten(tree, &mut Vec::new(), &mut leaves);

        for path in leaves {
            let target = absolute(module, &path).unwrap_or_else(|| [module, &path].concat());
            if let Some(name) = target.last() {
                let export = [module, std::slice::from_ref(name)].concat();
                if export != target {
                    self.exports.insert(export, target);
                }
            }
        }
    }

    fn is_test(&self, module: &[String]) -> bool {
        (1..=module.len()).any(|length| self.tests.contains(&module[..length]))
    }

    /// Replaces re-exported names by what they stand for.
    fn resolve(&self, mut path: ModulePath) -> ModulePath {
        // Re-exports of re-exports are few.
        for _ in 0..4 {
            let prefix =
                (1..=path.len()).find(|length| self.exports.contains_key(&path[..*length]));
            let Some(length) = prefix else { break };
            path = [&self.exports[&path[..length]], &path[length..]].concat();
        }
        path
    }
}

/// The paths that a file names, outside its tests.
struct References {
    module: ModulePath,
    found: Vec<(usize, ModulePath)>,
}

impl References {
    fn of(module: &[String]) -> Self {
        Self {
            module: module.to_owned(),
            found: Vec::new(),
        }
    }

    fn add(&mut self, line: usize, path: &[String]) {
        if let Some(path) = absolute(&self.module, path) {
            self.found.push((line, path));
        }
    }
}

impl<'ast> Visit<'ast> for References {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let mut leaves = Vec::new();
        flatten(&item.tree, &mut Vec::new(), &mut leaves);

        let line = item.span().start().line;
        for path in &leaves {
            self.add(line, path);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: ModulePath = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        self.add(path.span().start().line, &names);

        visit::visit_path(self, path);
    }

    /// Most macros take expressions.
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        type Arguments = syn::punctuated::Punctuated<syn::Expr, syn::Token![,]>;

        if let Ok(arguments) = call.parse_body_with(Arguments::parse_terminated) {
            let mut inner = Self::of(&self.module);
            arguments
                .iter()
                .for_each(|argument| inner.visit_expr(argument));
            self.found.append(&mut inner.found);
        }
        visit::visit_macro(self, call);
    }
}

/// All paths of a `use`.
fn flatten(tree: &syn::UseTree, prefix: &mut ModulePath, leaves: &mut Vec<ModulePath>) {
    match tree {
        syn::UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            flatten(&path.tree, prefix, leaves);
            prefix.pop();
        }
        syn::UseTree::Group(group) => {
            group
                .items
                .iter()
                .for_each(|tree| flatten(tree, prefix, leaves));
        }
        syn::UseTree::Name(name) if name.ident == "self" => leaves.push(prefix.clone()),
        syn::UseTree::Name(name) => leaves.push(extended(prefix, &name.ident)),
        syn::UseTree::Rename(rename) => leaves.push(extended(prefix, &rename.ident)),
        syn::UseTree::Glob(_) => leaves.push(prefix.clone()),
    }
}

fn extended(path: &[String], name: &syn::Ident) -> ModulePath {
    [path, &[name.to_string()]].concat()
}

/// A path that begins with `crate`, `self` or `super`, from the root of the crate.
fn absolute(module: &[String], path: &[String]) -> Option<ModulePath> {
    let (first, rest) = path.split_first()?;

    match first.as_str() {
        "crate" => Some(rest.to_owned()),
        "self" => Some([module, rest].concat()),
        "super" => {
            let (_, parent) = module.split_last()?;
            let is_further = rest.first().is_some_and(|next| next == "super");
            if is_further {
                absolute(parent, rest)
            } else {
                Some([parent, rest].concat())
            }
        }
        _ => None,
    }
}

/// Whether an item is compiled for tests only.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg = attribute.path().is_ident("cfg");
        is_cfg && attribute.meta.to_token_stream().to_string() == "cfg (test)"
    })
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The lines with `cfg(feature)`.
#[derive(Default)]
struct FeatureLines(Vec<usize>);

impl<'ast> Visit<'ast> for FeatureLines {
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        let is_cfg = attribute.path().is_ident("cfg") || attribute.path().is_ident("cfg_attr");
        if is_cfg && names_feature(&attribute.meta) {
            self.0.push(attribute.span().start().line);
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if call.path.is_ident("cfg") && names_feature(&call.tokens) {
            self.0.push(call.span().start().line);
        }
    }
}

fn names_feature(tokens: &impl ToTokens) -> bool {
    tokens.to_token_stream().to_string().contains("feature =")
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
        visit::visit_item(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::source;
    use super::*;

    fn library() -> Library {
        let text = "
            sources = 'a/src'
            stores = ['file', 'redis', 'redis/redlock']
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
    fn feature_outside_named_files_is_a_violation() -> Result<()> {
        let text = "#[cfg(feature = \"a\")]\nfn a() {}\n\nfn b() -> bool {\n    \
                    cfg!(feature = \"b\")\n}\n#[cfg(test)]\nfn c() {}\n";
        let sources = [source("a/src/b.rs", text), source("a/tests/c.rs", text)];

        let violations = check_features(&sources, &[])?;
        let lines: Vec<usize> = violations.iter().map(|violation| violation.line).collect();

        assert_eq!(lines, [1, 5]);
        assert!(check_features(&sources, &["a/src/b.rs".to_owned()])?.is_empty());
        Ok(())
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
