//! Every store of this crate × every suite.
#![cfg(all(feature = "conformance", feature = "file", feature = "redis"))]
#![allow(missing_docs, clippy::wildcard_imports)]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use leasehold::conformance::{FACED, Face, PLAIN, Service};
use leasehold::{Result, Store, stores};

struct Memory(stores::Memory);

#[async_trait]
impl Service for Memory {
    async fn connect(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(self.0.clone()))
    }
}

/// One folder, opened anew by every client, as other processes would.
struct Folder(PathBuf);

impl Folder {
    fn fresh() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder").keep())
    }
}

#[async_trait]
impl Service for Folder {
    async fn connect(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(stores::File::at(&self.0)?))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays in the temporary folder harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server of its own, and every client a connection of its own.
struct Server(lab_servers::Redis);

#[async_trait]
impl Service for Server {
    async fn connect(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(stores::Redis::at(&self.0.url())?.connect().await?))
    }
}

mod redis {
    use super::*;
    leasehold::conformance_tests!(Server(lab_servers::Redis::start()));
}

mod memory {
    use super::*;
    leasehold::conformance_tests!(Memory(stores::Memory::new()));
}

mod file {
    use super::*;
    leasehold::conformance_tests!(Folder::fresh());
}

/// Fails when a store × suite pair has no test.
#[test]
fn no_pair_is_missing() {
    let this_program = std::env::current_exe().expect("a running program has a file");
    let listed =
        std::process::Command::new(this_program).args(["--list", "--format", "terse"]).output().expect("it runs");
    let listed = String::from_utf8(listed.stdout).expect("test names are text");
    let listed: BTreeSet<&str> = listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    for store in ["memory", "file", "redis"] {
        let faced = FACED.iter().flat_map(|suite| Face::ALL.map(|(face, _)| format!("{store}::{suite}::{face}")));
        let plain = PLAIN.iter().map(|suite| format!("{store}::{suite}"));
        for pair in faced.chain(plain) {
            assert!(listed.contains(&*pair), "{pair} is not tested");
        }
    }
}
