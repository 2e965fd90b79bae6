//! Whether the crates can be published.

use anyhow::{Result, bail};

use crate::step::{Step, succeeds};

/// Builds the packages as crates.io would, and checks that the version fits the changes of the API
/// since the baseline.
pub(crate) fn check(baseline: Option<&str>) -> Result<()> {
    let packages = "publish --dry-run --workspace";
    Step::cargo("packages", packages).run_printed()?;

    if let Some(baseline) = baseline.map(str::to_owned).or_else(last_tag) {
        return compare(&baseline);
    }
    println!("xtask: the API is NOT compared: no commit has a tag; name the baseline");
    Ok(())
}

fn compare(baseline: &str) -> Result<()> {
    if !succeeds("cargo-semver-checks", &["--version"]) {
        bail!("cargo-semver-checks is missing; cargo install --locked cargo-semver-checks");
    }

    Step::cargo(
        "API",
        "semver-checks -p leasehold --all-features --baseline-rev",
    )
    .arg(baseline)
    .run_printed()
}

fn last_tag() -> Option<String> {
    let tags = Step::program("git")
        .args(["tag", "--list", "--sort=-creatordate"])
        .output()
        .ok()?;

    tags.lines().next().map(str::to_owned)
}
