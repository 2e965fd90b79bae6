//! A copy of the working tree, in which mutants are tried out.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::patch::Mutant;

/// What tests find below `target`, where the chores have put it.
const FETCHED: [&str; 3] = ["jars", "peers", "wheels"];

/// The copy, and where it is built. It stays, so that the next run builds little.
pub(super) struct Tree {
    home: PathBuf,
}

impl Tree {
    /// Copies what git knows of, as it is in the working tree; what is the same already is left alone, so that it is not built
    /// anew.
    pub(super) fn copy(root: &Path) -> Result<Self> {
        let root = root.canonicalize()?;
        let tree = Self { home: root.join("target/mutants") };
        let files = files(&root)?;
        for file in &files {
            copy(&root.join(file), &tree.path().join(file))?;
        }
        remove_others(&tree.path(), &tree.path(), &files.iter().collect())?;
        let target = tree.path().join("target");
        fs::create_dir_all(&target)?;
        for name in FETCHED {
            match symlink(root.join("target").join(name), target.join(name)) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.into()),
                Ok(()) | Err(_) => {}
            }
        }
        fs::create_dir_all(tree.notes())?;
        Ok(tree)
    }

    pub(super) fn path(&self) -> PathBuf {
        self.home.join("tree")
    }

    pub(super) fn build(&self) -> PathBuf {
        self.home.join("build")
    }

    /// Where the table and the logs go.
    pub(super) fn notes(&self) -> PathBuf {
        self.home.join("notes")
    }

    /// Makes the bug; dropping the answer mends it.
    pub(super) fn apply<'a>(&'a self, mutant: &'a Mutant) -> Result<Applied<'a>> {
        self.git_apply(mutant, &[])?;
        Ok(Applied { tree: self, mutant })
    }

    fn git_apply(&self, mutant: &Mutant, more: &[&str]) -> Result<()> {
        let mut command = Command::new("git");
        // The copy lies within a repository, but is none: paths are those of the copy.
        command.current_dir(self.path()).env("GIT_CEILING_DIRECTORIES", &self.home);
        let told = command.arg("apply").args(more).arg(&mutant.path).output().context("cannot run git")?;
        ensure!(told.status.success(), "it does not apply: {}", String::from_utf8_lossy(&told.stderr).trim());
        Ok(())
    }
}

/// A bug that is there.
pub(super) struct Applied<'a> {
    tree: &'a Tree,
    mutant: &'a Mutant,
}

impl Drop for Applied<'_> {
    fn drop(&mut self) {
        self.tree.git_apply(self.mutant, &["--reverse"]).expect("what was just applied can be taken back");
    }
}

/// All files of the working tree that are not ignored.
fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let told = Command::new("git").args(listing).current_dir(root).output().context("cannot run git")?;
    ensure!(told.status.success(), "git cannot list the files: {}", String::from_utf8_lossy(&told.stderr));
    let names = String::from_utf8(told.stdout).context("a file's name is no text")?;
    let files = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from);
    Ok(files.filter(|file| root.join(file).is_file()).collect())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let wanted = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    if fs::read(to).is_ok_and(|present| present == wanted) {
        return Ok(());
    }
    fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
    fs::copy(from, to).with_context(|| format!("cannot write {}", to.display()))?;
    // Of now, so that it is built anew whatever was there before.
    fs::File::options().write(true).open(to)?.set_modified(std::time::SystemTime::now())?;
    Ok(())
}

fn remove_others(tree: &Path, folder: &Path, wanted: &HashSet<&PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.strip_prefix(tree).expect("it lies in the tree").to_owned();
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
