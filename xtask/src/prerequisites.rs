//! The programs that tests and benchmarks need besides Rust.

use std::env;

use anyhow::{Result, bail, ensure};

use crate::fetch::{self, Download};
use crate::step::{Step, succeeds};

/// A program or the path of a file, and the Debian package that contains it.
type Prerequisite = (&'static str, &'static str);

const PREREQUISITES: &[Prerequisite] = &[
    ("git", "git"),
    ("timeout", "coreutils"),
    ("mount", "mount"),
    ("flock", "util-linux"),
    ("unshare", "util-linux"),
    ("script", "bsdutils"),
    // Shells and programs whose scripts use leasehold.
    ("/usr/bin/dash", "dash"),
    ("zsh", "zsh"),
    ("fish", "fish"),
    ("busybox", "busybox"),
    ("sudo", "sudo"),
    ("make", "make"),
    ("time", "time"),
    // It counts the system calls of an acquire.
    ("strace", "strace"),
    // It checks the units in docs/recipes.md.
    ("systemd-analyze", "systemd"),
    // A FUSE file system, which the file store rejects.
    ("bindfs", "bindfs"),
    // Servers, and the programs that start them.
    ("setpriv", "util-linux"),
    ("taskset", "util-linux"),
    ("openssl", "openssl"),
    ("redis-server", "redis-server"),
    ("java", "default-jre-headless"),
    ("/usr/share/java/zookeeper.jar", "libzookeeper-java"),
    // A database with locks, and whose tables reject stale tokens, and a pool in front of it.
    ("/usr/lib/postgresql", "postgresql"),
    ("/usr/sbin/pgbouncer", "pgbouncer"),
    // Foreign clients that contend for locks on ZooKeeper.
    ("javac", "default-jdk-headless"),
    (
        "/usr/share/java/curator-recipes.jar",
        "libcurator-recipes-java",
    ),
    // The compiler of the library that shifts the clock of a server.
    ("cc", "gcc"),
    // Foreign clients in Python.
    ("python3", "python3"),
    // Downloads.
    ("pip3", "python3-pip"),
    ("mvn", "maven"),
    // Requests to `leasehold serve`.
    ("curl", "curl"),
    ("/etc/ssl/certs/ca-certificates.crt", "ca-certificates"),
    // Foreign clients that share locks with leasehold.
    ("node", "nodejs"),
    ("npm", "npm"),
    ("go", "golang-go"),
    // A browser for the page of `leasehold serve`, and what scrapes its metrics.
    ("chromium", "chromium"),
    ("prometheus", "prometheus"),
];
/// Debian starts these services on installation. The tests start their own servers.
const SERVICES: [&str; 4] = ["redis-server", "postgresql", "pgbouncer", "prometheus"];
/// Parts of the Rust toolchain: the program and the component of rustup.
const COMPONENTS: [(&str, &str); 2] = [("cargo-fmt", "rustfmt"), ("cargo-clippy", "clippy")];

/// Installs what the tests need.
pub(crate) fn install_for_tests() -> Result<()> {
    install(&fetch::for_tests()?)
}

/// Prints what the tests need and the machine does not have.
pub(crate) fn list() -> Result<()> {
    let downloads = fetch::for_tests()?;

    if !Missing::find(&downloads).is_listed() {
        println!("xtask: nothing is missing on this machine");
    }
    Ok(())
}

/// Lists what is missing before the first change to the machine, and installs it.
pub(crate) fn install(downloads: &[Download]) -> Result<()> {
    let missing = Missing::find(downloads);
    if !missing.is_listed() {
        return Ok(());
    }

    for component in &missing.components {
        Step::program("rustup")
            .args(["component", "add", component])
            .run_printed()?;
    }
    install_packages(&missing.packages)?;
    missing
        .downloads
        .iter()
        .try_for_each(|download| download.fetch())
}

/// What the machine does not have.
struct Missing<'a> {
    components: Vec<&'static str>,
    packages: Vec<Prerequisite>,
    downloads: Vec<&'a Download>,
}

impl<'a> Missing<'a> {
    fn find(downloads: &'a [Download]) -> Self {
        let components = COMPONENTS
            .iter()
            .filter(|(program, _)| !succeeds(program, &["--version"]));
        let packages = PREREQUISITES.iter().filter(|needed| !is_present(needed));
        let downloads = downloads.iter().filter(|download| !download.is_present());

        Self {
            components: components.map(|(_, component)| *component).collect(),
            packages: packages.copied().collect(),
            downloads: downloads.collect(),
        }
    }

    /// Prints a line for each part, and returns whether there is one.
    fn is_listed(&self) -> bool {
        let lines = self.lines();
        if lines.is_empty() {
            return false;
        }

        println!("xtask: missing on this machine:\n  {}", lines.join("\n  "));
        true
    }

    fn lines(&self) -> Vec<String> {
        let components = self.components.iter();
        let packages = self.packages.iter();

        components
            .map(|component| format!("{component} (component of rustup)"))
            .chain(packages.map(|(needed, package)| format!("{needed} (Debian package {package})")))
            .chain(self.downloads.iter().map(|download| download.title.clone()))
            .collect()
    }
}

/// Whether a file exists, or a program in a folder of `PATH`.
fn is_present((needed, _): &Prerequisite) -> bool {
    let folders = env::var_os("PATH").unwrap_or_default();

    // A path from the root replaces the folder.
    env::split_paths(&folders).any(|folder| folder.join(needed).exists())
}

fn install_packages(missing: &[Prerequisite]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }

    let packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    if !is_root() || !succeeds("apt-get", &["--version"]) {
        bail!(
            "install them first; on Debian: sudo apt-get install {}",
            packages.join(" ")
        );
    }

    Step::program("apt-get")
        .args(["update", "--quiet"])
        .run_printed()?;
    Step::program("apt-get")
        .args(["install", "--yes", "--no-install-recommends"])
        .args(packages.iter().copied())
        .run_printed()?;
    for service in SERVICES.iter().filter(|name| packages.contains(name)) {
        // A container has not started it, and tests also work beside a running service.
        succeeds("service", &[service, "stop"]);
    }

    for needed in missing {
        ensure!(is_present(needed), "{} is still missing", needed.0);
    }
    Ok(())
}

fn is_root() -> bool {
    succeeds("sh", &["-c", "test $(id -u) = 0"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_parts_are_listed_with_their_packages() {
        assert!(is_present(&("true", "coreutils")));
        assert!(is_present(&("/etc/passwd", "base-passwd")));
        assert!(!is_present(&("xtask-absent-program", "none")));

        let missing = Missing {
            components: vec!["clippy"],
            packages: vec![("bindfs", "bindfs")],
            downloads: vec![],
        };
        assert_eq!(
            missing.lines(),
            [
                "clippy (component of rustup)",
                "bindfs (Debian package bindfs)"
            ]
        );
    }
}
