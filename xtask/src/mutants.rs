//! Seeded bugs, and the tests that find them.
//!
//! Each `lab/mutants/NAME.patch` is a small bug. Its header names the broken rule and the command
//! that must fail. A run applies the bugs one after the other to a copy of the working tree, so the
//! tree itself stays as it is. A command that fails without its bug as well would find nothing, so
//! `--without-bugs` runs all of them on an unchanged copy.

mod check;
mod patch;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use sha1_smol::Sha1;

use crate::repository;
use crate::step::Step;
use crate::usage::with_prefixes;
use check::Verdict;
pub(crate) use patch::Mutant;

/// How many mutants `cargo xtask test` tries.
const DRAWN: usize = 2;

/// Tries the mutants whose names begin so, or all.
pub(crate) fn run(names: &[String], without_bugs: bool) -> Result<()> {
    let mutants = Mutant::all(&repository::root())?;
    let mutants = with_prefixes("mutant", mutants, names, |mutant| &mutant.name)?;
    if without_bugs {
        return run_checks(&mutants);
    }

    try_each(&mutants)
}

/// Runs the commands of the mutants on an unchanged copy. All of them must pass.
fn run_checks(mutants: &[Mutant]) -> Result<()> {
    let tree = copy_of_tree()?;
    let log = tree.with_file_name("without-bugs.log");
    let checks: BTreeSet<&str> = mutants.iter().map(|mutant| &*mutant.check).collect();
    let mut failed = Vec::new();

    for check in checks {
        match check::run(&tree, check, &log)? {
            Verdict::Passed => println!("xtask: cargo {check} passes"),
            Verdict::Failed(by) => failed.push(format!("cargo {check}\n    {by}")),
            Verdict::DoesNotCompile => failed.push(format!("cargo {check}\n    does not compile")),
        }
    }
    ensure!(
        failed.is_empty(),
        "checks that fail without a bug:\n  {}",
        failed.join("\n  ")
    );
    Ok(())
}

/// Tries two mutants. Each commit tries others, and the same commit the same ones.
pub(crate) fn run_drawn() -> Result<()> {
    let commit = repository::commit()?;
    let mut mutants = Mutant::all(&repository::root())?;
    mutants.sort_by_cached_key(|mutant| {
        let text = format!("{commit} {}", mutant.name);
        Sha1::from(text).digest().bytes()
    });

    mutants.truncate(DRAWN);
    try_each(&mutants)
}

fn try_each(mutants: &[Mutant]) -> Result<()> {
    let mut survivors = Vec::new();

    for mutant in mutants {
        if let Err(error) = try_out(mutant) {
            println!("xtask: {error:#}");
            survivors.push(mutant.name.as_str());
        }
    }
    ensure!(
        survivors.is_empty(),
        "not found; to repeat them:\n  cargo xtask mutants {}",
        survivors.join(" ")
    );
    Ok(())
}

/// Applies a bug to the copy and runs its command, which must fail.
fn try_out(mutant: &Mutant) -> Result<()> {
    let Mutant { name, breaks, .. } = mutant;
    let start = Instant::now();
    let tree = copy_of_tree()?;
    Step::program("git")
        .args(["apply", "--directory", COPY])
        .arg(&mutant.path.to_string_lossy())
        .run()?;

    let log = tree.with_file_name(format!("{name}.log"));
    match check::run(&tree, &mutant.check, &log)? {
        Verdict::Failed(by) => {
            let seconds = start.elapsed().as_secs();
            println!("xtask: {name}: {breaks}; {by} found it in {seconds} s");
            Ok(())
        }
        Verdict::Passed => bail!("{name}: {breaks}; nothing finds it, see {}", log.display()),
        Verdict::DoesNotCompile => bail!("{name} does not compile, see {}", log.display()),
    }
}

/// Locked for as long as this process uses the copy.
static USED: OnceLock<File> = OnceLock::new();

/// The copy of the working tree, relative to the root.
const COPY: &str = "target/mutants/tree";

/// Makes the copy equal to the working tree, without the files that git ignores. A file that has
/// not changed keeps its time, so that cargo does not build it again.
pub(crate) fn copy_of_tree() -> Result<PathBuf> {
    let root = repository::root();
    let home = root.join("target/mutants");
    let tree = root.join(COPY);
    fs::create_dir_all(&tree)?;
    if USED.get().is_none() {
        let lock = File::create(home.join("lock"))?;
        lock.try_lock()
            .context("another run has a bug in target/mutants/tree")?;
        // No other thread of this process makes the copy.
        USED.set(lock).expect("it was not set");
    }
    // Tests find there what xtask has fetched.
    let link = tree.join("target");
    if !link.exists() {
        symlink(root.join("target"), link)?;
    }

    // Each of the two trees has an index of its own beside that of the repository.
    let git = |index: &str| {
        let index = home.join(index);
        Step::program("git").env("GIT_INDEX_FILE", &index.to_string_lossy())
    };
    git("index-of-working-tree").args(["add", "--all"]).run()?;
    let content = git("index-of-working-tree").arg("write-tree").output()?;
    git("index-of-copy")
        .env("GIT_WORK_TREE", &tree.to_string_lossy())
        .args(["read-tree", "--reset", "-u", content.trim()])
        .run()?;

    let manifest = tree.join("Cargo.toml");
    fs::write(&manifest, of_copy(&fs::read_to_string(&manifest)?))?;
    Ok(tree)
}

/// Returns the manifest with another version for all packages of the workspace.
///
/// The copy and the working tree share the compiled dependencies. Cargo tells their own packages
/// apart by name, version and path inside the workspace, so with the same version the next test of
/// the working tree would run what was compiled with a bug.
fn of_copy(manifest: &str) -> String {
    let version = concat!("\nversion = \"", env!("CARGO_PKG_VERSION"));
    manifest.replacen(version, &format!("{version}+copy"), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_of_the_copy_are_kept_apart_by_their_version() -> Result<()> {
        let copied = fs::read_to_string(copy_of_tree()?.join("Cargo.toml"))?;
        let version = copied.lines().find(|line| line.starts_with("version"));

        let expected = concat!("version = \"", env!("CARGO_PKG_VERSION"), "+copy\"");
        assert_eq!(version, Some(expected));
        Ok(())
    }
}
