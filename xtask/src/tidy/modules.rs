//! Rules on the modules of the library: layers and stores.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde::Deserialize;
use syn::visit::Visit;

use super::references::{Map, ModulePath, References};
use super::{Rule, Source, Violation, parse};
use crate::repository::extension;

/// The library whose layers are checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Library {
    /// The folder of its sources.
    sources: String,
    /// Modules below `stores` that are a store, as paths.
    stores: Vec<String>,
    /// Modules below `stores` that stores share.
    shared: Vec<String>,
    /// From the top to the bottom.
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Layer {
    name: String,
    modules: Vec<String>,
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

    let map = Map::of(modules.iter().map(|module| (&module.path, &module.file)));
    let mut violations = library.check_list(&modules)?;
    violations.extend(library.check_list_of_stores(&modules));
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

    /// Every module below `stores` is a store or shared by stores.
    fn check_list_of_stores(&self, modules: &[Module<'_>]) -> Vec<Violation> {
        let unlisted = modules.iter().filter_map(|module| match &module.path[..] {
            [top, name] if top == "stores" => {
                let is_listed = self.stores.contains(name) || self.shared.contains(name);
                (!is_listed).then_some((module, name))
            }
            _ => None,
        });

        unlisted
            .map(|(module, name)| {
                let message =
                    format!("`{name}` is neither in `stores` nor in `shared` of xtask/tidy.toml");
                module.source.violation(Rule::Stores, 1, message)
            })
            .collect()
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

#[cfg(test)]
mod tests;
