//! The paths that the modules of a crate name.

use std::collections::{BTreeMap, BTreeSet};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// The path of a module or an item from the root of its crate.
pub(super) type ModulePath = Vec<String>;

/// What re-exports mean, and which modules are tests.
#[derive(Default)]
pub(super) struct Map {
    exports: BTreeMap<ModulePath, ModulePath>,
    tests: BTreeSet<ModulePath>,
}

impl Map {
    /// Reads the modules of a library, each with its path.
    pub(super) fn of<'a>(modules: impl Iterator<Item = (&'a ModulePath, &'a syn::File)>) -> Self {
        let mut map = Self::default();

        for (module, file) in modules {
            for item in &file.items {
                match item {
                    syn::Item::Use(item) if !matches!(item.vis, syn::Visibility::Inherited) => {
                        map.add_exports(module, &item.tree);
                    }
                    syn::Item::Mod(item) if is_test(&item.attrs) => {
                        map.tests.insert(extended(module, &item.ident));
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

    pub(super) fn is_test(&self, module: &[String]) -> bool {
        (1..=module.len()).any(|length| self.tests.contains(&module[..length]))
    }

    /// Replaces re-exported names by what they stand for.
    pub(super) fn resolve(&self, mut path: ModulePath) -> ModulePath {
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
pub(super) struct References {
    module: ModulePath,
    /// The line and the path, from the root of the crate.
    pub(super) found: Vec<(usize, ModulePath)>,
}

impl References {
    pub(super) fn of(module: &[String]) -> Self {
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

    /// Visits the arguments of a macro as expressions, because most macros take expressions.
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
pub(super) fn is_test(attributes: &[syn::Attribute]) -> bool {
    let names_test = |attribute: &syn::Attribute| {
        let name = attribute.parse_args::<syn::Ident>();
        name.is_ok_and(|name| name == "test")
    };

    attributes
        .iter()
        .any(|attribute| attribute.path().is_ident("cfg") && names_test(attribute))
}

pub(super) fn attributes(item: &syn::Item) -> &[syn::Attribute] {
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
