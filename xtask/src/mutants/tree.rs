//! A copy of the working tree that mutants are applied to.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};

use super::patch::Mutant;
use crate::repository;

/// Folders below `target` with what xtask fetches for tests.
const FETCHED: [&str; 3] = ["jars", "peers", "wheels"];

/// The copy, its build and its logs. They stay, so that the next run builds little.
pub(super) struct Tree {
    home: PathBuf,
    build: PathBuf,
}

impl Tree {
    /// Copies the files that git does not ignore. A file that has not changed keeps its time, so
    /// that cargo does not build it again.
    pub(super) fn copy(root: &Path) -> Result<Self> {
        let root = root.canonicalize()?;
        let tree = Self {
            home: root.join("target/mutants"),
            build: root.join("target"),
        };

        let files = repository::files(&root)?;
        for file in &files {
            copy(&root.join(file), &tree.path().join(file))?;
        }
        remove_others(&tree.path(), &tree.path(), &files.iter().collect())?;

        tree.link_fetched(&root.join("target"))?;
        fs::create_dir_all(tree.logs())?;
        Ok(tree)
    }

    pub(super) fn path(&self) -> PathBuf {
        self.home.join("tree")
    }

    /// The folder of the build: that of the repository, so that dependencies are compiled once.
    pub(super) fn build(&self) -> PathBuf {
        self.build.clone()
    }

    /// The folder of the table and the logs.
    pub(super) fn logs(&self) -> PathBuf {
        self.home.join("notes")
    }

    /// Applies the patch. Dropping the result reverts it.
    pub(super) fn apply<'a>(&'a self, mutant: &'a Mutant) -> Result<Applied<'a>> {
        self.git_apply(mutant, &[])?;

        Ok(Applied {
            tree: self,
            mutant,
            is_reverted: false,
        })
    }

    fn git_apply(&self, mutant: &Mutant, options: &[&str]) -> Result<()> {
        let mut command = Command::new("git");
        // The copy lies within a repository. Paths of the patch are those of the copy.
        command
            .current_dir(self.path())
            .env("GIT_CEILING_DIRECTORIES", &self.home);
        command.arg("apply").args(options).arg(&mutant.path);

        let output = command.output().context("cannot run git")?;
        let reason = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "it does not apply: {}",
            reason.trim()
        );
        Ok(())
    }

    fn link_fetched(&self, target: &Path) -> Result<()> {
        let links = self.path().join("target");
        fs::create_dir_all(&links)?;

        for name in FETCHED {
            match symlink(target.join(name), links.join(name)) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.into()),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}

/// A mutant in the tree.
pub(super) struct Applied<'a> {
    tree: &'a Tree,
    mutant: &'a Mutant,
    is_reverted: bool,
}

impl Applied<'_> {
    pub(super) fn revert(mut self) -> Result<()> {
        self.is_reverted = true;

        self.tree.git_apply(self.mutant, &["--reverse"])
    }
}

impl Drop for Applied<'_> {
    fn drop(&mut self) {
        if !self.is_reverted {
            // A panic or an error is under way. The next run copies the changed files again.
            let _ = self.tree.git_apply(self.mutant, &["--reverse"]);
        }
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let wanted = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    if fs::read(to).is_ok_and(|present| present == wanted) {
        return Ok(());
    }

    fs::create_dir_all(to.parent().context("a file has a folder")?)?;
    fs::copy(from, to).with_context(|| format!("cannot write {}", to.display()))?;
    // cargo builds it again, even if the file that was there is newer.
    fs::File::options()
        .write(true)
        .open(to)?
        .set_modified(SystemTime::now())?;
    Ok(())
}

fn remove_others(tree: &Path, folder: &Path, wanted: &HashSet<&PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path
            .strip_prefix(tree)
            .expect("it is in the tree")
            .to_owned();
        if name == Path::new("target") {
            continue;
        }

        if path.is_dir() {
            remove_others(tree, &path, wanted)?;
        } else if !wanted.contains(&name) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_is_written_only_if_it_differs() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let from = folder.path().join("from");
        let to = folder.path().join("a/to");
        let modified = || fs::metadata(folder.path().join("a/to"))?.modified();

        fs::write(&from, "one")?;
        copy(&from, &to)?;
        let first = modified()?;
        copy(&from, &to)?;
        assert_eq!(modified()?, first);

        fs::write(&from, "two")?;
        copy(&from, &to)?;
        assert_eq!(fs::read_to_string(&to)?, "two");
        Ok(())
    }

    #[test]
    fn files_that_are_not_wanted_are_removed_and_target_stays() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let tree = folder.path();
        fs::create_dir_all(tree.join("a"))?;
        fs::create_dir_all(tree.join("target"))?;
        for file in ["a/wanted", "a/other", "target/built"] {
            fs::write(tree.join(file), "")?;
        }

        remove_others(tree, tree, &HashSet::from([&PathBuf::from("a/wanted")]))?;

        assert!(tree.join("a/wanted").exists() && tree.join("target/built").exists());
        assert!(!tree.join("a/other").exists());
        Ok(())
    }
}
