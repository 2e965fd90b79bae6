//! The Debian package of a release.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};

use super::{Dist, PROGRAM, package_field};
use crate::repository;
use crate::step::Step;

/// A folder of the release, and where Debian expects its files.
const PLACES: [(&str, &str); 4] = [
    (PROGRAM, "usr/bin/leasehold"),
    (
        "completions/leasehold.bash",
        "usr/share/bash-completion/completions/leasehold",
    ),
    (
        "completions/_leasehold",
        "usr/share/zsh/vendor-completions/_leasehold",
    ),
    (
        "completions/leasehold.fish",
        "usr/share/fish/vendor_completions.d/leasehold.fish",
    ),
];

const EXECUTABLE: u32 = 0o755;
const READABLE: u32 = 0o644;

/// Writes `leasehold_VERSION_ARCHITECTURE.deb` into the folder of the release.
pub(super) fn build(dist: &Dist) -> Result<()> {
    let architecture = Step::program("dpkg").arg("--print-architecture").output()?;
    let architecture = architecture.trim();

    let tree = tempfile::tempdir()?;
    fill(tree.path(), dist)?;
    fill_control(tree.path(), dist, architecture)?;

    let package = format!("leasehold_{}_{architecture}.deb", dist.version);
    Step::program("dpkg-deb")
        .args(["--build", "--root-owner-group"])
        .arg(&tree.path().to_string_lossy())
        .arg(&dist.path(&package).to_string_lossy())
        .run()
}

/// Copies what the package installs.
fn fill(tree: &Path, dist: &Dist) -> Result<()> {
    for (from, to) in PLACES {
        let mode = if from == PROGRAM {
            EXECUTABLE
        } else {
            READABLE
        };
        copy(&dist.path(from), &tree.join(to), mode)?;
    }

    let pages = tree.join("usr/share/man/man1");
    fs::create_dir_all(&pages)?;
    for page in fs::read_dir(dist.path("man"))? {
        let page = page?;
        let to = pages.join(page.file_name());
        copy(&page.path(), &to, READABLE)?;
        Step::program("gzip")
            .args(["-9n", &to.to_string_lossy()])
            .run()?;
    }

    let root = repository::root();
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let to = tree.join("usr/share/doc/leasehold").join(licence);
        copy(&root.join(licence), &to, READABLE)?;
    }
    Ok(())
}

/// Writes the control file and the maintainer scripts.
fn fill_control(tree: &Path, dist: &Dist, architecture: &str) -> Result<()> {
    let sources = repository::root().join("packaging/debian");
    let size = fs::metadata(dist.path(PROGRAM))?.len().div_ceil(1024);

    let template = fs::read_to_string(sources.join("control"))?;
    let control = template
        .replace("@VERSION@", &dist.version)
        .replace("@ARCHITECTURE@", architecture)
        .replace("@INSTALLED_SIZE@", &size.to_string())
        .replace("@HOMEPAGE@", &package_field("repository")?);

    fs::create_dir_all(tree.join("DEBIAN"))?;
    fs::write(tree.join("DEBIAN/control"), control)?;
    for script in ["postinst", "postrm"] {
        let to = tree.join("DEBIAN").join(script);
        copy(&sources.join(script), &to, EXECUTABLE)?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let folder = to.parent().context("a file has a folder")?;
    fs::create_dir_all(folder)?;

    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(())
}
