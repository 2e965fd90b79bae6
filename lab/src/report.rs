//! The folder for the figures of benchmarks.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;

/// The folder for figures, `target/bench`. It is created if it is missing.
///
/// # Errors
/// If the folder cannot be created.
pub fn folder() -> Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target")),
        PathBuf::from,
    );
    let folder = target.join("bench");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}
