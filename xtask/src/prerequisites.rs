//! The programs that tests and benchmarks need besides Rust.

use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail, ensure};

use crate::fetch::{self, Download};
use crate::step::{Step, succeeds};

/// A program or a file, and the Debian package that contains it.
struct Prerequisite {
    program: &'static str,
    /// The argument with which the program exits with success; empty for a file.
    probe: &'static str,
    package: &'static str,
}

const fn program(
    program: &'static str,
    probe: &'static str,
    package: &'static str,
) -> Prerequisite {
    Prerequisite {
        program,
        probe,
        package,
    }
}

const fn file(path: &'static str, package: &'static str) -> Prerequisite {
    Prerequisite {
        program: path,
        probe: "",
        package,
    }
}

const PREREQUISITES: &[Prerequisite] = &[
    program("git", "--version", "git"),
    program("timeout", "--version", "coreutils"),
    program("mount", "--version", "mount"),
    program("flock", "--version", "util-linux"),
    program("unshare", "--version", "util-linux"),
    program("script", "--version", "bsdutils"),
    // Shells and programs whose scripts use leasehold.
    file("/usr/bin/dash", "dash"),
    program("zsh", "--version", "zsh"),
    program("busybox", "true", "busybox"),
    program("sudo", "--version", "sudo"),
    program("make", "--version", "make"),
    program("time", "--version", "time"),
    // It checks the units in docs/recipes.md.
    program("systemd-analyze", "--version", "systemd"),
    // A FUSE file system, which the file store rejects.
    program("bindfs", "--version", "bindfs"),
    // Servers, and the programs that start them.
    program("setpriv", "--version", "util-linux"),
    program("taskset", "--version", "util-linux"),
    program("openssl", "version", "openssl"),
    program("redis-server", "--version", "redis-server"),
    program("java", "-version", "default-jre-headless"),
    file("/usr/share/java/zookeeper.jar", "libzookeeper-java"),
    // A database whose tables reject stale tokens.
    file("/usr/lib/postgresql", "postgresql"),
    // Foreign clients that contend for locks on ZooKeeper.
    program("javac", "-version", "default-jdk-headless"),
    file(
        "/usr/share/java/curator-recipes.jar",
        "libcurator-recipes-java",
    ),
    // The compiler of the library that shifts the clock of a server.
    program("cc", "--version", "gcc"),
    // Foreign clients in Python.
    program("python3", "--version", "python3"),
    // Downloads.
    program("pip3", "--version", "python3-pip"),
    program("curl", "--version", "curl"),
    file("/etc/ssl/certs/ca-certificates.crt", "ca-certificates"),
    // Foreign clients that share locks with leasehold.
    program("node", "--version", "nodejs"),
    program("npm", "--version", "npm"),
    program("go", "version", "golang-go"),
    // A browser for the page of `leasehold serve`, and what scrapes its metrics.
    program("chromium", "--version", "chromium"),
    program("prometheus", "--version", "prometheus"),
];
/// Debian starts these services on installation. The tests start their own servers.
const SERVICES: [&str; 3] = ["redis-server", "postgresql", "prometheus"];
/// Parts of the Rust toolchain: the program and the component of rustup.
const COMPONENTS: [(&str, &str); 2] = [("cargo-fmt", "rustfmt"), ("cargo-clippy", "clippy")];

/// Installs what the tests need.
pub(crate) fn install_for_tests() -> Result<()> {
    install(&fetch::for_tests()?)
}

/// Installs what the tests and the benchmarks need.
pub(crate) fn install_for_benchmarks() -> Result<()> {
    install(&fetch::for_benchmarks()?)
}

/// Installs what starts servers, but not the foreign clients.
pub(crate) fn install_servers() -> Result<()> {
    install(&fetch::servers())
}

/// Prints what the tests need and the machine does not have.
pub(crate) fn list() -> Result<()> {
    let downloads = fetch::for_tests()?;
    let missing = Missing::find(&downloads);

    if missing.is_empty() {
        println!("xtask: nothing is missing on this machine");
    } else {
        print!("{missing}");
    }
    Ok(())
}

/// Lists what is missing before the first change to the machine.
fn install(downloads: &[Download]) -> Result<()> {
    let missing = Missing::find(downloads);
    if missing.is_empty() {
        return Ok(());
    }
    print!("{missing}");

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
    packages: Vec<&'static Prerequisite>,
    downloads: Vec<&'a Download>,
}

impl<'a> Missing<'a> {
    fn find(downloads: &'a [Download]) -> Self {
        let is_absent = |program: &str| !succeeds(program, &["--version"]);
        let components = COMPONENTS
            .iter()
            .filter(|(program, _)| is_absent(program))
            .map(|part| part.1);

        Self {
            components: components.collect(),
            packages: PREREQUISITES
                .iter()
                .filter(|needed| !needed.is_present())
                .collect(),
            downloads: downloads
                .iter()
                .filter(|download| !download.is_present())
                .collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.components.is_empty() && self.packages.is_empty() && self.downloads.is_empty()
    }
}

impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "xtask: missing on this machine:")?;

        for component in &self.components {
            writeln!(f, "  {component} (component of rustup)")?;
        }
        for needed in &self.packages {
            writeln!(
                f,
                "  {} (Debian package {})",
                needed.program, needed.package
            )?;
        }
        for download in &self.downloads {
            writeln!(f, "  {download}")?;
        }
        Ok(())
    }
}

impl Prerequisite {
    fn is_present(&self) -> bool {
        match self.probe {
            "" => Path::new(self.program).exists(),
            probe => succeeds(self.program, &[probe]),
        }
    }
}

fn install_packages(missing: &[&Prerequisite]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }

    let packages: Vec<&str> = missing.iter().map(|needed| needed.package).collect();
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
    packages
        .iter()
        .filter(|package| SERVICES.contains(package))
        .for_each(|name| stop(name));

    let absent = missing.iter().find(|needed| !needed.is_present());
    ensure!(
        absent.is_none(),
        "{} is still missing",
        absent.map_or("", |needed| needed.program)
    );
    Ok(())
}

/// Stops a service. A container never started it, and tests also work beside a running service, so
/// the outcome does not matter.
fn stop(service: &str) {
    let _ = Command::new("service")
        .args([service, "stop"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();

    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prerequisite_is_present_only_if_its_probe_succeeds() {
        assert!(program("true", "--version", "coreutils").is_present());
        assert!(!program("false", "", "coreutils").is_present());
        assert!(!program("xtask-absent-program", "--version", "none").is_present());
        assert!(file("/etc/passwd", "base-passwd").is_present());
    }

    #[test]
    fn missing_parts_are_listed_with_their_packages() {
        let absent = Box::leak(Box::new(program("bindfs", "--version", "bindfs")));
        let missing = Missing {
            components: vec!["clippy"],
            packages: vec![absent],
            downloads: vec![],
        };

        assert_eq!(
            missing.to_string(),
            "xtask: missing on this machine:\n  \
             clippy (component of rustup)\n  bindfs (Debian package bindfs)\n"
        );
    }
}
