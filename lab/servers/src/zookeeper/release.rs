//! Which server, of those that `cargo xtask test` sees to.

use std::path::{Path, PathBuf};

/// A release of ZooKeeper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZooKeeperRelease {
    /// Debian's.
    #[default]
    Installed,
    /// The newest one.
    Newest,
}

/// The jars of Debian's `libzookeeper-java` and of what it depends on that any server needs.
const COMMON: [&str; 6] = [
    "slf4j-api",
    "slf4j-simple",
    "netty-all",
    "netty-codec",
    "snappy-java",
    "metrics-core",
];

impl ZooKeeperRelease {
    /// All jars of a server.
    ///
    /// # Panics
    /// If one is missing.
    pub(super) fn jars(self) -> String {
        let own = ["zookeeper", "zookeeper-jute"].map(|name| match self {
            Self::Installed => installed(name),
            Self::Newest => fetched(name),
        });
        let jars: Vec<PathBuf> = own.into_iter().chain(COMMON.map(installed)).collect();
        for jar in &jars {
            assert!(
                jar.exists(),
                "{} is missing: run `cargo xtask needs`, which sees to it",
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

/// Where `cargo xtask needs` puts what it fetches.
fn fetched(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/jars")).join(format!("{name}.jar"))
}
