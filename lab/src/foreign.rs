//! Programs that use lock libraries of other languages.

use std::path::Path;
use std::process::Command;

/// The JARs that Java programs with Curator need: those of Debian's `libcurator-recipes-java` and
/// its dependencies.
const CURATOR: [&str; 7] = [
    "curator-recipes",
    "curator-framework",
    "curator-client",
    "guava",
    "zookeeper",
    "zookeeper-jute",
    "slf4j-api",
];

/// Runs a Python program with the packages that `cargo xtask` fetches for it.
#[must_use]
pub fn python(program: &Path) -> Command {
    let mut command = Command::new("python3");
    command.arg(program);
    command.env(
        "PYTHONPATH",
        concat!(env!("CARGO_MANIFEST_DIR"), "/../target/peers/python"),
    );
    command
}

/// The class path of Curator.
#[must_use]
pub fn curator() -> String {
    CURATOR
        .map(|jar| format!("/usr/share/java/{jar}.jar"))
        .join(":")
}
