//! Whether the crates can be published.

use anyhow::{Result, bail};

use crate::step::{Step, succeeds};

/// The commit whose API is promised until a release has a tag: see docs/stability.md.
const FIRST_BASELINE: &str = "6cde0329a76cfc1d287fe14f96e5978fa7b5a127";

/// Builds the packages as crates.io would, and checks that the version fits the changes of the API
/// since the baseline.
pub(crate) fn check(baseline: Option<&str>) -> Result<()> {
    let packages = "publish --dry-run --workspace";
    Step::cargo("packages", packages).run_printed()?;

    let baseline = baseline.map(str::to_owned).or_else(last_tag);
    compare(baseline.as_deref().unwrap_or(FIRST_BASELINE))
}

/// Compares the API, whose types are those of the crates that `leasehold` exports.
///
/// Without `--all-features`, cargo-semver-checks leaves out the features whose names begin with
/// `unstable`.
fn compare(baseline: &str) -> Result<()> {
    if !succeeds("cargo-semver-checks", &["--version"]) {
        bail!("cargo-semver-checks is missing; cargo install --locked cargo-semver-checks");
    }

    Step::cargo("API", "semver-checks --baseline-rev")
        .arg(baseline)
        .args(EXPORTED.iter().flat_map(|package| ["-p", *package]))
        .run_printed()
}

fn last_tag() -> Option<String> {
    let tags = Step::program("git")
        .args(["tag", "--list", "v*", "--sort=-creatordate"])
        .output()
        .ok()?;

    tags.lines().next().map(str::to_owned)
}

const EXPORTED: [&str; 4] = [
    "leasehold",
    "leasehold-core",
    "leasehold-redis",
    "leasehold-zookeeper",
];
