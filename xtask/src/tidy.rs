//! The conventions of this repository, as rules that can fail.
//!
//! | rule | what it rejects |
//! |---|---|
//! | words | forbidden words in comments, strings, documents and test names |
//! | columns | lines of .rs, .lua and .sql files over 100 columns |
//! | stores | a store that names another store; a module below `stores` that is in no list |
//! | layers | a module that names a layer above its own |
//! | features | `cfg(feature)` outside the files that are named for it |
//! | types | a type name that a crate defines twice |
//! | documents | a path in a document that does not exist |
//! | scripts | a Lua script whose header does not state keys, arguments, replies |
//!
//! `xtask/tidy.toml` names stores, layers and files. `xtask/allowed.toml` counts the violations
//! that exist, by folder. A count may only shrink: more violations fail, and fewer fail until the
//! number is lowered.

mod allowances;
mod crates;
mod documents;
mod lines;
mod modules;
mod passages;
mod references;
mod words;

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Deserialize;

use crate::repository::{self, extension};
use allowances::Allowances;
use modules::Library;

/// What `cargo xtask tidy` does.
#[derive(Args)]
pub(crate) struct TidyArgs {
    /// Lower the numbers in xtask/allowed.toml to what there is
    #[arg(long, conflicts_with = "paths")]
    update: bool,
    /// List all violations below these files and folders, allowed ones too
    paths: Vec<String>,
}

/// Something that a rule rejects.
#[derive(Clone, Debug, PartialEq)]
struct Violation {
    rule: Rule,
    /// What it is counted for: the path of its file, or `CRATE/TYPE` of a duplicate.
    key: String,
    file: String,
    line: usize,
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
enum Rule {
    Words,
    Columns,
    Stores,
    Layers,
    Features,
    Types,
    Documents,
    Scripts,
}

/// A file of the working tree.
struct Source {
    path: String,
    text: String,
}

/// The content of `tidy.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    library: Library,
    features: Features,
}

/// Where `cfg(feature)` may be.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Features {
    files: Vec<String>,
}

/// Runs the rules, lowers the allowances, or lists violations.
pub(crate) fn run(options: &TidyArgs) -> Result<()> {
    if options.update {
        return update();
    }
    if options.paths.is_empty() {
        return check();
    }

    let paths: Vec<&str> = options
        .paths
        .iter()
        .map(|path| path.trim_end_matches('/'))
        .collect();
    let violations = violations(&repository::root())?;
    let is_meant = |file: &str| paths.iter().any(|path| is_below(file, path));
    for violation in violations
        .iter()
        .filter(|violation| is_meant(&violation.file))
    {
        println!("{violation}");
    }
    Ok(())
}

/// Fails if there are more violations than allowed, or fewer.
pub(crate) fn check() -> Result<()> {
    let root = repository::root();
    let violations = violations(&root)?;
    let problems = Allowances::load(&root)?.compare(&violations);

    if problems.is_empty() {
        println!(
            "xtask: tidy passed with {} allowed violations",
            violations.len()
        );
        return Ok(());
    }
    bail!(
        "step `tidy` failed; to repeat it:\n  cargo xtask tidy\n{}",
        problems.join("\n")
    );
}

fn update() -> Result<()> {
    let root = repository::root();
    let mut allowances = Allowances::load(&root)?;

    let lowered = allowances.lower(&violations(&root)?);
    allowances.save(&root)?;
    println!("xtask: {lowered} numbers lowered");

    check()
}

fn violations(root: &Path) -> Result<Vec<Violation>> {
    let config = Config::load(root)?;
    let files = repository::files(root)?;
    let paths: Vec<String> = files
        .iter()
        .map(|file| file.to_string_lossy().into_owned())
        .collect();
    let sources = read(root, &paths)?;

    let mut violations = Vec::new();
    for source in &sources {
        violations.extend(words::check(source));
        violations.extend(lines::check_columns(source));
        violations.extend(lines::check_script_header(source));
        violations.extend(documents::check(source, &paths));
    }
    violations.extend(crates::check_features(&sources, &config.features.files));
    violations.extend(modules::check_library(&sources, &config.library)?);
    violations.extend(crates::check_types(&sources)?);

    violations.sort_by(|one, other| {
        (&one.file, one.line, one.rule).cmp(&(&other.file, other.line, other.rule))
    });
    Ok(violations)
}

/// The files that have rules. The changelog quotes history, and translations have other words.
fn read(root: &Path, paths: &[String]) -> Result<Vec<Source>> {
    let is_checked = |path: &&String| {
        let has_rules = ["rs", "lua", "sql", "md"].contains(&extension(path));
        has_rules && !path.contains("CHANGELOG") && !path.ends_with(".zh-CN.md")
    };

    let sources = paths.iter().filter(is_checked).map(|path| {
        let text = fs::read_to_string(root.join(path)).with_context(|| path.clone())?;
        Ok(Source {
            path: path.clone(),
            text,
        })
    });
    sources.collect()
}

fn parse(source: &Source) -> Result<syn::File> {
    syn::parse_file(&source.text).with_context(|| source.path.clone())
}

impl Config {
    fn load(root: &Path) -> Result<Self> {
        let text = fs::read_to_string(root.join("xtask/tidy.toml"))?;

        toml::from_str(&text).context("xtask/tidy.toml is not valid")
    }
}

impl Source {
    fn violation(&self, rule: Rule, line: usize, message: String) -> Violation {
        Violation {
            rule,
            key: self.path.clone(),
            file: self.path.clone(),
            line,
            message,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}: {}",
            self.file, self.line, self.rule, self.message
        )
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Words => "words",
            Self::Columns => "columns",
            Self::Stores => "stores",
            Self::Layers => "layers",
            Self::Features => "features",
            Self::Types => "types",
            Self::Documents => "documents",
            Self::Scripts => "scripts",
        })
    }
}

/// Whether a path is that of a folder, or of something in it.
fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn source(path: &str, text: &str) -> Source {
        Source {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn folder_contains_its_files_and_not_its_namesakes() {
        assert!(is_below("lab/src/a.rs", "lab/src"));
        assert!(is_below("lab/src", "lab/src"));
        assert!(!is_below("lab/src.rs", "lab/src"));
        assert!(!is_below("lab/srcs/a.rs", "lab/src"));
    }
}
