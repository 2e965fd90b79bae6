//! The repository that xtask works on.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::step::Step;

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
    let names = Step::program("git")
        .folder(root)
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .output()?;
    let mut files: Vec<PathBuf> = names
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(PathBuf::from)
        .filter(|file| root.join(file).is_file())
        .collect();
    files.sort_by(|one, other| one.as_os_str().cmp(other.as_os_str()));

    Ok(files)
}

/// What cargo knows of the workspace.
pub(crate) fn metadata() -> Result<Value> {
    let metadata = Step::cargo("metadata", "metadata --no-deps --format-version=1").output()?;

    serde_json::from_str(&metadata).context("metadata is not JSON")
}

/// What cargo knows of a package.
pub(crate) fn package(name: &str) -> Result<Value> {
    let mut metadata = metadata()?;
    let packages = metadata["packages"].as_array_mut();
    let found = packages
        .into_iter()
        .flatten()
        .find(|package| package["name"] == name);

    Ok(found
        .with_context(|| format!("there is no package {name}"))?
        .take())
}

/// The hash of the current commit.
pub(crate) fn commit() -> Result<String> {
    let hash = Step::program("git").args(["rev-parse", "HEAD"]).output()?;

    Ok(hash.trim().to_owned())
}

/// The ending of a path without its dot, empty if it has none.
pub(crate) fn extension(path: &str) -> &str {
    let extension = Path::new(path)
        .extension()
        .and_then(|extension| extension.to_str());

    extension.unwrap_or_default()
}
