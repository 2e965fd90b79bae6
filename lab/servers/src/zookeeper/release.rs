//! The releases of ZooKeeper that `cargo xtask test` installs or fetches.

use std::path::{Path, PathBuf};

/// A release of ZooKeeper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZooKeeperRelease {
    /// The release of the Debian package.
    #[default]
    Installed,
    /// The newest release.
    Newest,
}

/// The jars that every server needs, from Debian's `libzookeeper-java` and its dependencies.
const COMMON: [&str; 6] = [
    "slf4j-api",
    "slf4j-simple",
    "netty-all",
    "netty-codec",
    "snappy-java",
    "metrics-core",
];

impl ZooKeeperRelease {
    /// Returns the class path with all jars of a server.
    ///
    /// # Panics
    /// Panics if a jar is missing.
    pub(super) fn jars(self) -> String {
        let own = ["zookeeper", "zookeeper-jute"].map(|name| match self {
            Self::Installed => installed(name),
            Self::Newest => fetched(name),
        });
        let jars: Vec<PathBuf> = own.into_iter().chain(COMMON.map(installed)).collect();
        for jar in &jars {
            assert!(
                jar.exists(),
                "{} is missing: run `cargo xtask install`, which installs it",
                jar.display()
            );
        }

        jars.iter()
            .map(|jar| jar.display().to_string())
            .collect::<Vec<_>>()
            .join(":")
    }
}

fn installed(name: &str) -> PathBuf {
    Path::new("/usr/share/java").join(format!("{name}.jar"))
}

/// The path of a jar that `cargo xtask install` fetches.
fn fetched(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/jars")).join(format!("{name}.jar"))
}
