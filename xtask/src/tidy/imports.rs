//! Which files of a crate name each other. They are read as tokens, so that macros count too.
//!
//! A file may name the modules that it lies in: a part knows what it is a part of. Every other name
//! is an arrow, and arrows that lead back are a circle, in which no file can be read first.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The path of a module or an item from the root of its crate.
type ModulePath = Vec<String>;

/// The modules that each module names.
type Arrows = BTreeMap<ModulePath, BTreeSet<ModulePath>>;

/// The circles of a crate, whose files are named by its folder and their modules.
pub(super) fn circles(
    folder: &str,
    files: &BTreeMap<String, String>,
) -> Result<Vec<BTreeSet<String>>> {
    let crate_name = folder.rsplit('/').next().unwrap_or_default();
    let mut names: BTreeMap<ModulePath, Vec<ModulePath>> = BTreeMap::new();
    for (path, text) in files {
        let tokens: TokenStream = without_tests(text)
            .parse()
            .map_err(|error| anyhow!("{path}: {error}"))?;
        let mut found = Vec::new();
        read(tokens, &mut found);
        names.insert(module_of(path), found);
    }

    let arrows = arrows(&names);
    let shown = |module: &ModulePath| format!("{crate_name}/{}", module.join("/"));
    let circles: BTreeSet<BTreeSet<String>> = arrows
        .keys()
        .filter_map(|module| {
            let ahead = reached(&arrows, module);
            let back = |other: &&ModulePath| reached(&arrows, other).contains(module);
            let circle: BTreeSet<String> = ahead.iter().filter(back).map(shown).collect();
            (!circle.is_empty()).then_some(circle)
        })
        .collect();
    Ok(circles.into_iter().collect())
}

/// A file up to its tests, which come last.
pub(super) fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod ").next().unwrap_or_default()
}

fn arrows(names: &BTreeMap<ModulePath, Vec<ModulePath>>) -> Arrows {
    // What a module imports is a name in it, for its children too.
    let mut imports = BTreeMap::new();
    for (module, paths) in names {
        for path in paths {
            let target = absolute(module, path, names);
            if let (Some(target), Some(name)) = (target, path.last()) {
                imports.insert(
                    [module.as_slice(), std::slice::from_ref(name)].concat(),
                    target,
                );
            }
        }
    }

    let mut arrows = Arrows::new();
    for (module, paths) in names {
        let targets = paths.iter().filter_map(|path| {
            let target = resolve(absolute(module, path, names)?, &imports);
            let file = (0..=target.len())
                .rev()
                .map(|length| target[..length].to_vec())
                .find(|file| names.contains_key(file))?;
            (!module.starts_with(&file)).then_some(file)
        });
        arrows.insert(module.clone(), targets.collect());
    }
    arrows
}

/// Follows imports of imports, which are few.
fn resolve(mut path: ModulePath, imports: &BTreeMap<ModulePath, ModulePath>) -> ModulePath {
    for _ in 0..4 {
        let import = (1..=path.len()).find_map(|length| {
            let target = imports.get(&path[..length])?;
            let is_another = !path.starts_with(target) && !target.starts_with(&path[..length]);
            is_another.then(|| [target, &path[length..]].concat())
        });
        match import {
            Some(target) => path = target,
            None => break,
        }
    }
    path
}

/// A path from the root of the crate; none if it begins with another crate.
fn absolute(
    module: &[String],
    path: &[String],
    modules: &BTreeMap<ModulePath, Vec<ModulePath>>,
) -> Option<ModulePath> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_owned()),
        "self" => Some([module, rest].concat()),
        "super" => {
            let (_, parent) = module.split_last()?;
            if rest.first().is_some_and(|next| next == "super") {
                absolute(parent, rest, modules)
            } else {
                Some([parent, rest].concat())
            }
        }
        _ => {
            let child = [module, std::slice::from_ref(first)].concat();
            modules
                .contains_key(&child)
                .then(|| [module, path].concat())
        }
    }
}

/// All modules to which arrows lead from a module.
fn reached(arrows: &Arrows, from: &ModulePath) -> BTreeSet<ModulePath> {
    let mut reached = BTreeSet::new();
    let mut left = vec![from];
    while let Some(module) = left.pop() {
        for next in arrows.get(module).into_iter().flatten() {
            if reached.insert(next.clone()) {
                left.push(next);
            }
        }
    }
    reached
}

/// `crates/a/src/stores/redis/link.rs` is `stores::redis::link`, and `lib.rs` is the root.
fn module_of(path: &str) -> ModulePath {
    let inner = path.split_once("/src/").map_or(path, |(_, inner)| inner);
    let parts = inner.trim_end_matches(".rs").split('/');

    parts
        .filter(|part| !["lib", "main"].contains(part))
        .map(str::to_owned)
        .collect()
}

/// Reads all paths of two or more parts.
fn read(tokens: TokenStream, paths: &mut Vec<ModulePath>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        if let TokenTree::Group(group) = &tokens[at] {
            read(group.stream(), paths);
        }
        at += read_path(&tokens[at..], &[], paths).max(1);
    }
}

/// Reads `a::b` or `a::{b, c::d}` with all its paths, and returns how many tokens it has.
fn read_path(tokens: &[TokenTree], prefix: &[String], paths: &mut Vec<ModulePath>) -> usize {
    let mut path = prefix.to_owned();
    let mut at = 0;
    loop {
        match tokens.get(at) {
            // `a::{self}` is `a`.
            Some(TokenTree::Ident(name)) if name == "self" && !path.is_empty() => {}
            Some(TokenTree::Ident(name)) => path.push(name.to_string()),
            Some(TokenTree::Group(group)) if at > 0 && group.delimiter() == Delimiter::Brace => {
                let tree: Vec<TokenTree> = group.stream().into_iter().collect();
                for part in tree.split(|token| is(token, ',')) {
                    read_path(part, &path, paths);
                }
                return at + 1;
            }
            _ => break,
        }
        at += 1;

        match &tokens[at..] {
            [one, other, ..] if is(one, ':') && is(other, ':') => at += 2,
            _ => break,
        }
    }
    if path.len() > 1 {
        paths.push(path);
    }
    at
}

fn is(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let files = files
            .iter()
            .map(|(path, text)| (format!("x/a/src/{path}.rs"), (*text).to_owned()))
            .collect();
        let circles = circles("x/a", &files).expect("the samples are valid");

        circles
            .into_iter()
            .map(|circle| circle.into_iter().collect())
            .collect()
    }

    #[test]
    fn files_that_name_each_other_are_a_circle() {
        for (b, c) in [
            ("use crate::c::C;", "use super::b::B;"),
            (
                "use crate::{x, c::{C, D}};",
                "fn a() { vec![crate::b::B::new()]; }",
            ),
            // The root imports both.
            ("use crate::C;", "use crate::B;"),
        ] {
            let root = ("lib", "mod b; mod c; use b::B; pub use c::C;");
            let circles = found(&[root, ("b", b), ("c", c)]);
            assert_eq!(circles, [["a/b", "a/c"]], "{b} {c}");
        }
    }

    #[test]
    fn part_that_names_its_whole_is_no_circle() {
        let whole = ("b", "mod c; use c::C; pub struct B;");
        assert!(found(&[whole, ("b/c", "use super::B;")]).is_empty());

        let tests = "fn a() {}\n#[cfg(test)]\nmod tests { use crate::b::B; }";
        assert!(found(&[("b", "use crate::c::C;"), ("c", tests)]).is_empty());
    }

    #[test]
    fn part_belongs_to_the_circle_of_its_whole() {
        let files = [
            ("b", "mod d; use d::D; pub struct B;"),
            ("b/d", "use crate::c::C;"),
            ("c", "use crate::b::B;"),
        ];
        assert_eq!(found(&files), [["a/b", "a/b/d", "a/c"]]);
    }
}
