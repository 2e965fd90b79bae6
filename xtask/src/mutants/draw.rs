//! The mutants that a run of CI tries, and their order.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use sha1_smol::Sha1;

use super::patch::Mutant;
use super::{MutantsArgs, run};

/// How many mutants such a run tries at least, however long they take.
pub(super) const DRAWN_MIN: usize = 2;

/// Tries the mutants that the commit decides; a step of `cargo xtask test`.
pub(crate) fn run_drawn() -> Result<()> {
    run(&MutantsArgs {
        names: Vec::new(),
        results: None,
        budget: Some(0),
        drawn: true,
        compile_only: false,
    })
}

/// Sorts mutants by a digest of the commit and their names. So each commit tries others, and the
/// same commit the same ones.
pub(super) fn sort(mutants: &mut [Mutant], commit: &str) {
    mutants.sort_by_cached_key(|mutant| {
        let text = format!("{commit} {}", mutant.name);
        Sha1::from(text).digest().bytes()
    });
}

/// The hash of the current commit.
pub(crate) fn commit(root: &Path) -> Result<String> {
    let output = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(root)
        .output()
        .context("cannot run git")?;

    ensure!(output.status.success(), "git knows no commit");
    let hash = String::from_utf8(output.stdout).context("a hash is text")?;
    Ok(hash.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::root;

    fn names(commit: &str) -> Vec<String> {
        let mut mutants = ["a", "b", "c", "d", "e"].map(Mutant::sample);
        sort(&mut mutants, commit);
        mutants.map(|mutant| mutant.name).to_vec()
    }

    #[test]
    fn commit_decides_the_order() {
        assert_eq!(names("1f0c"), names("1f0c"));
        assert!((0..10).any(|other| names(&other.to_string()) != names("1f0c")));

        let mut sorted = names("1f0c");
        sorted.sort();
        assert_eq!(sorted, ["a", "b", "c", "d", "e"]);
    }

    #[test]
    fn commit_of_this_repository_is_a_hash() -> Result<()> {
        let commit = commit(&root())?;

        ensure!(commit.len() == 40, "{commit}");
        Ok(())
    }
}
