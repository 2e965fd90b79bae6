//! The patches, and what their heads say.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// A bug, and the check that must find it.
#[derive(Debug)]
pub(super) struct Mutant {
    pub(super) name: String,
    /// One sentence.
    pub(super) breaks: String,
    /// What follows `cargo`.
    pub(super) check: String,
    pub(super) path: PathBuf,
}

impl Mutant {
    /// All of them, by name.
    pub(super) fn all(root: &Path) -> Result<Vec<Self>> {
        let folder = root.join("lab/mutants");
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        paths.retain(|path| path.extension().is_some_and(|ending| ending == "patch"));
        paths.sort();
        paths.into_iter().map(Self::read).collect()
    }

    fn read(path: PathBuf) -> Result<Self> {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let head = |word: &str| {
            let line =
                text.lines().take_while(|line| !line.starts_with("--- ")).find_map(|line| line.strip_prefix(word));
            line.map(str::to_owned).with_context(|| format!("{} has no line {word}…", path.display()))
        };
        let (breaks, check) = (head("breaks: ")?, head("check: cargo ")?);
        ensure!(check.starts_with("test "), "{}: a check is a cargo test", path.display());
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, breaks, check, path })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::root;
    use super::*;

    #[test]
    fn every_mutant_applies() -> Result<()> {
        let mutants = Mutant::all(&root())?;
        ensure!(mutants.len() >= 30, "there are {} only", mutants.len());
        for mutant in mutants {
            let told = Command::new("git").args(["apply", "--check"]).arg(&mutant.path).current_dir(root()).output()?;
            let why = String::from_utf8_lossy(&told.stderr);
            ensure!(told.status.success(), "{} does not apply any more: {why}", mutant.name);
        }
        Ok(())
    }

    #[test]
    fn every_check_names_a_test_that_is_there() -> Result<()> {
        let mut sources = String::new();
        for folder in ["crates", "lab", "xtask/src"] {
            read_all(&root().join(folder), &mut sources)?;
        }
        for mutant in Mutant::all(&root())? {
            let filter = mutant.check.split_whitespace().last().unwrap_or_default();
            // Some suites run once for each face.
            let test = filter.rsplit("::").find(|part| *part != "mutex").unwrap_or_default();
            ensure!(sources.contains(&format!("fn {test}(")), "{}: there is no test {test}", mutant.name);
        }
        Ok(())
    }

    fn read_all(folder: &Path, text: &mut String) -> Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                read_all(&path, text)?;
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                text.push_str(&fs::read_to_string(path)?);
            }
        }
        Ok(())
    }
}
