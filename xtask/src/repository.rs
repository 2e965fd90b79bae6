//! The repository that xtask works on.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));

    folder
        .parent()
        .expect("xtask lies in the workspace")
        .to_owned()
}

/// Paths of all files of the working tree that git does not ignore, relative to `root`, sorted.
pub(crate) fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .context("cannot run git")?;
    let reason = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "git cannot list the files: {reason}"
    );

    let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    let mut files: Vec<PathBuf> = names
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(PathBuf::from)
        .filter(|file| root.join(file).is_file())
        .collect();
    files.sort_by(|one, other| one.as_os_str().cmp(other.as_os_str()));

    Ok(files)
}

/// The ending of a path without its dot, empty if it has none.
pub(crate) fn extension(path: &str) -> &str {
    let extension = Path::new(path)
        .extension()
        .and_then(|extension| extension.to_str());

    extension.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_include_this_one_and_exclude_build_results() -> Result<()> {
        let files = files(&root())?;

        assert!(files.contains(&PathBuf::from("xtask/src/repository.rs")));
        assert!(!files.iter().any(|file| file.starts_with("target")));
        Ok(())
    }
}
