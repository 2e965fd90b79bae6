//! Which files of a crate name each other. They are read as tokens, so that macros count too.
//!
//! A file may name the modules that it lies in: a part knows what it is a part of. Every other name
//! is an arrow, and arrows that lead back are a circle, in which no file can be read first.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Modules by their paths from the root of the crate, each with paths. Each part of a path ends
/// with `::`, so that the root is empty.
type Modules = BTreeMap<String, BTreeSet<String>>;

/// The circles of a crate, whose files are named by its folder and their modules.
pub(super) fn circles(
    folder: &str,
    files: &BTreeMap<&str, &str>,
) -> Result<BTreeSet<BTreeSet<String>>> {
    let crate_name = folder.rsplit('/').next().unwrap_or_default();
    let mut names = Modules::new();
    for (path, text) in files {
        // The tests come last.
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let tokens: TokenStream = code
            .parse()
            .map_err(|error| anyhow!("{folder}/src/{path}: {error}"))?;
        read(tokens, names.entry(module_of(path)).or_default());
    }

    let arrows = arrows(&names);
    let shown = |module: &String| format!("{crate_name}/{}", parts(module).join("/"));
    let circles = arrows.keys().map(|module| {
        let back = reached(&arrows, module)
            .into_iter()
            .filter(|other| reached(&arrows, other).contains(module));
        back.map(shown).collect()
    });
    Ok(circles
        .filter(|circle: &BTreeSet<_>| !circle.is_empty())
        .collect())
}

/// `stores/redis/link.rs` is `stores::redis::link::`, and `lib.rs` is the root.
fn module_of(path: &str) -> String {
    let parts = path.trim_end_matches(".rs").split('/');
    let parts = parts.filter(|part| !["lib", "main"].contains(part));

    parts.flat_map(|part| [part, "::"]).collect()
}

fn parts(path: &str) -> Vec<&str> {
    path.split_terminator("::").collect()
}

/// The other modules that each module names.
fn arrows(names: &Modules) -> Modules {
    let imported_by = |module: &str, paths: &BTreeSet<String>| -> BTreeMap<String, String> {
        let found = paths.iter().filter_map(|path| {
            let name = format!("{module}{}::", parts(path).last()?);
            Some((name, absolute(module, path, names)?))
        });
        found.collect()
    };
    // What a module imports is a name in it, for its children too.
    let imports: BTreeMap<String, String> = names
        .iter()
        .flat_map(|(module, paths)| imported_by(module, paths))
        .collect();

    let arrows = names.iter().map(|(module, paths)| {
        let targets = paths.iter().filter_map(|path| {
            let target = resolve(absolute(module, path, names)?, &imports);
            let file = prefixes(&target)
                .rev()
                .find(|file| names.contains_key(*file))?;
            (!module.starts_with(file)).then(|| file.to_owned())
        });
        (module.clone(), targets.collect())
    });
    arrows.collect()
}

/// Follows imports of imports, which are few.
fn resolve(mut path: String, imports: &BTreeMap<String, String>) -> String {
    for _ in 0..4 {
        let import = prefixes(&path).find_map(|name| {
            let target = imports.get(name)?;
            let is_another = !path.starts_with(target) && !target.starts_with(name);
            is_another.then(|| format!("{target}{}", &path[name.len()..]))
        });
        let Some(target) = import else { break };
        path = target;
    }
    path
}

/// The root, and each longer beginning of a path.
fn prefixes(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    let ends: Vec<usize> = path.match_indices("::").map(|(at, _)| at + 2).collect();

    std::iter::once(0).chain(ends).map(|end| &path[..end])
}

/// A path from the root of the crate; none if it begins with another crate.
fn absolute(module: &str, path: &str, modules: &Modules) -> Option<String> {
    let (first, rest) = path.split_once("::")?;
    match first {
        "crate" => Some(rest.to_owned()),
        "self" => Some(format!("{module}{rest}")),
        "super" => {
            let parent = prefixes(module).rev().nth(1)?;
            if rest.starts_with("super::") {
                return absolute(parent, rest, modules);
            }
            Some(format!("{parent}{rest}"))
        }
        _ => modules
            .contains_key(&format!("{module}{first}::"))
            .then(|| format!("{module}{path}")),
    }
}

/// All modules to which arrows lead from a module.
fn reached<'a>(arrows: &'a Modules, from: &String) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut left: Vec<&String> = arrows[from].iter().collect();
    while let Some(module) = left.pop() {
        if reached.insert(module) {
            left.extend(&arrows[module]);
        }
    }
    reached
}

/// Reads all paths of two or more parts.
fn read(tokens: TokenStream, paths: &mut BTreeSet<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        if let TokenTree::Group(group) = &tokens[at] {
            read(group.stream(), paths);
        }
        at += read_path(&tokens[at..], "", paths).max(1);
    }
}

/// Reads `a::b` or `a::{b, c::d}` with all its paths, and returns how many tokens it has.
fn read_path(tokens: &[TokenTree], prefix: &str, paths: &mut BTreeSet<String>) -> usize {
    let is = |token: &TokenTree, wanted: char| matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted);
    let mut path = prefix.to_owned();
    let mut at = 0;
    loop {
        match tokens.get(at) {
            // `a::{self}` is `a`.
            Some(TokenTree::Ident(name)) if name == "self" && !path.is_empty() => {}
            Some(TokenTree::Ident(name)) => path.extend([&name.to_string(), "::"]),
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
    if parts(&path).len() > 1 {
        paths.insert(path);
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let files = files.iter().copied().collect();
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
