//! Libraries in other languages that benchmarks compare with.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::needs::run;

/// Where the files of peers are.
const FOLDERS: [&str; 2] = ["lab/tests/interop/peers", "lab/benches/redis/peers"];

/// Installs what the files of peers ask for in their first lines, `# needs: PACKAGE==VERSION`, and what is not there yet.
pub(crate) fn fetch() -> Result<()> {
    FOLDERS.iter().try_for_each(|folder| fetch_for(folder))
}

/// Those that only benchmarks need wait until one is run.
pub(crate) fn fetch_for_tests() -> Result<()> {
    fetch_for(FOLDERS[0])
}

fn fetch_for(folder: &str) -> Result<()> {
    for entry in fs::read_dir(workspace().join(folder))? {
        let file = entry?.path();
        if file.extension().is_some_and(|extension| extension == "py") {
            install(&needs_of(&file)?)?;
        }
    }
    Ok(())
}

fn needs_of(file: &Path) -> Result<String> {
    let text = fs::read_to_string(file)?;
    let needs = text.lines().next().and_then(|line| line.strip_prefix("# needs: "));
    Ok(needs.with_context(|| format!("{} does not say what it needs", file.display()))?.to_owned())
}

/// Into a folder that the benchmark has in its `PYTHONPATH`; a file there remembers it.
fn install(package: &str) -> Result<()> {
    let folder = workspace().join("target/peers/python");
    let done = folder.join(format!(".{package}"));
    if done.exists() {
        return Ok(());
    }
    let target = folder.to_str().context("the workspace's path is not text")?;
    let terms = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--root-user-action=ignore",
        "--upgrade",
        "--target",
    ];
    run("python3", &[&terms[..], &[target, package]].concat())?;
    Ok(fs::write(done, "")?)
}

fn workspace() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
