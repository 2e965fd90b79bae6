//! What the rules need to know of a Rust file. It is read as tokens, so that macros count too.

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The path of a module or an item from the root of its crate.
pub(super) type ModulePath = Vec<String>;

/// A Rust file outside tests. Code below `cfg(test)` counts for `features` only.
pub(super) struct Source {
    pub(super) path: String,
    pub(super) module: ModulePath,
    /// The lines and paths that begin with `crate`, `self` or `super`.
    pub(super) names: Vec<(usize, ModulePath)>,
    /// The names that it exports, and what they stand for.
    pub(super) exports: Vec<(ModulePath, ModulePath)>,
    /// The modules that are tests.
    pub(super) tests: Vec<ModulePath>,
    /// The lines and names of the types that are not in a function.
    pub(super) types: Vec<(usize, String)>,
    /// The lines with `cfg(feature)`.
    pub(super) features: Vec<usize>,
}

impl Source {
    pub(super) fn parse(path: &str, text: &str) -> Result<Self> {
        let tokens: TokenStream = text.parse().map_err(|error| anyhow!("{path}: {error}"))?;
        let module = module_of(path);
        let mut source = Self {
            path: path.to_owned(),
            module: module.clone(),
            names: Vec::new(),
            exports: Vec::new(),
            tests: Vec::new(),
            types: Vec::new(),
            features: Vec::new(),
        };

        source.read_features(tokens.clone());
        source.read_items(tokens, &module);
        Ok(source)
    }

    /// The folder of the crate.
    pub(super) fn krate(&self) -> &str {
        let folder = self.path.split("/src/").next().unwrap_or_default();

        folder.rsplit('/').next().unwrap_or_default()
    }

    pub(super) fn violation(&self, line: usize, message: &str) -> String {
        format!("{}:{line}: {message}", self.path)
    }

    fn read_features(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();

        for (at, token) in tokens.iter().enumerate() {
            let TokenTree::Group(group) = token else {
                continue;
            };
            let is_condition = tokens[..at]
                .iter()
                .rev()
                .find(|before| !is(before, '!'))
                .is_some_and(|before| is_word(before, "cfg") || is_word(before, "cfg_attr"));
            if is_condition && group.to_string().contains("feature =") {
                self.features.push(line_of(token));
            } else {
                self.read_features(group.stream());
            }
        }
    }

    /// Reads what an inline module contains, or the file.
    fn read_items(&mut self, tokens: TokenStream, module: &[String]) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();

        for pair in tokens.windows(2) {
            let is_type = ["struct", "enum", "trait", "type"]
                .iter()
                .any(|keyword| is_word(&pair[0], keyword));
            if let (true, TokenTree::Ident(name)) = (is_type, &pair[1]) {
                self.types.push((line_of(&pair[1]), name.to_string()));
            }
        }
        self.read_names(&tokens, module);
    }

    fn read_names(&mut self, tokens: &[TokenTree], module: &[String]) {
        let mut at = 0;

        while let Some(first) = tokens.get(at) {
            at += match &tokens[at..] {
                [_, TokenTree::Group(attribute), item @ ..]
                    if is(first, '#') && attribute.stream().to_string() == "cfg (test)" =>
                {
                    2 + self.skip_test(item, module)
                }
                [_, TokenTree::Ident(name), TokenTree::Group(body), ..]
                    if is_word(first, "mod") =>
                {
                    let module = [module, &[name.to_string()]].concat();
                    self.read_items(body.stream(), &module);
                    3
                }
                [_, tree @ ..]
                    if is_word(first, "use") && at > 0 && is_visibility(&tokens[at - 1]) =>
                {
                    self.add_exports(tree, module);
                    1
                }
                [TokenTree::Ident(_), ..] => self.add_paths(&tokens[at..], module),
                [TokenTree::Group(group), ..] => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    self.read_names(&inner, module);
                    1
                }
                _ => 1,
            };
        }
    }

    /// Skips an item that is compiled for tests only, and returns how many tokens it has.
    fn skip_test(&mut self, item: &[TokenTree], module: &[String]) -> usize {
        let is_end = |token: &TokenTree| is(token, ';') || is_braced(token);
        let end = item.iter().position(is_end).unwrap_or(item.len());

        if let [.., keyword, TokenTree::Ident(name)] = &item[..end]
            && is_word(keyword, "mod")
        {
            self.tests.push([module, &[name.to_string()]].concat());
        }
        end + 1
    }

    fn add_exports(&mut self, tree: &[TokenTree], module: &[String]) {
        let mut paths = Vec::new();
        read_paths(tree, &[], &mut paths);

        for path in paths {
            let target = absolute(module, &path).unwrap_or_else(|| [module, &path].concat());
            let export = [module, &path[path.len().saturating_sub(1)..]].concat();
            if export != target {
                self.exports.push((export, target));
            }
        }
    }

    fn add_paths(&mut self, tokens: &[TokenTree], module: &[String]) -> usize {
        let mut paths = Vec::new();
        let length = read_paths(tokens, &[], &mut paths);
        let line = line_of(&tokens[0]);

        let targets = paths.iter().filter_map(|path| absolute(module, path));
        self.names.extend(targets.map(|target| (line, target)));
        length.max(1)
    }
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

/// Reads `a::b` or `a::{b, c::d}` with all its paths, and returns how many tokens it has.
fn read_paths(tokens: &[TokenTree], prefix: &[String], paths: &mut Vec<ModulePath>) -> usize {
    let mut path = prefix.to_owned();
    let mut at = 0;

    loop {
        match tokens.get(at) {
            // `a::{self}` is `a`.
            Some(TokenTree::Ident(name)) if name == "self" && !path.is_empty() => {}
            Some(TokenTree::Ident(name)) => path.push(name.to_string()),
            Some(TokenTree::Group(group)) if at > 0 && group.delimiter() == Delimiter::Brace => {
                for tree in trees(group) {
                    read_paths(&tree, &path, paths);
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
    paths.push(path);
    at
}

/// The parts of a group between its commas.
fn trees(group: &Group) -> Vec<Vec<TokenTree>> {
    let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
    let trees = tokens.split(|token| is(token, ','));

    trees
        .filter(|tree| !tree.is_empty())
        .map(<[TokenTree]>::to_vec)
        .collect()
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

fn is(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == word)
}

fn is_braced(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

/// `pub`, or the parentheses of `pub(crate)`.
fn is_visibility(token: &TokenTree) -> bool {
    let is_scope = matches!(token, TokenTree::Group(group)
        if group.delimiter() == Delimiter::Parenthesis);

    is_word(token, "pub") || is_scope
}

fn line_of(token: &TokenTree) -> usize {
    token.span().start().line
}
