//! Servers that Debian does not have, from Maven's repository.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::needs::run;

/// The newest ZooKeeper, with the digests of its jars.
const JARS: [(&str, &str, &str); 2] = [
    ("zookeeper", "3.9.6", "09bdf93be7c0b5b7cd9fe51bee6abe424796cd5aaf75cf0c10bbd6f1273562ee"),
    ("zookeeper-jute", "3.9.6", "74f9cb1e4ba899ecc4b816201b4afd1c63c256705bd9176393fac4071597c75f"),
];

/// Fetches what is not there yet, to `target/jars`.
pub(crate) fn fetch() -> Result<()> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/jars"));
    fs::create_dir_all(folder)?;
    JARS.iter().try_for_each(|(name, version, digest)| {
        // A name with its version, so that another version is fetched anew.
        let done = folder.join(format!(".{name}-{version}"));
        if done.exists() {
            return Ok(());
        }
        let jar = folder.join(format!("{name}.jar"));
        let jar = jar.to_str().context("the workspace's path is not text")?;
        let url = format!("https://repo1.maven.org/maven2/org/apache/zookeeper/{name}/{version}/{name}-{version}.jar");
        run("curl", &["--fail", "--silent", "--show-error", "--location", "--retry", "5", "--output", jar, &url])?;
        let list = folder.join(format!("{name}.sha256"));
        fs::write(&list, format!("{digest}  {jar}\n"))?;
        run("sha256sum", &["--check", "--quiet", list.to_str().context("the workspace's path is not text")?])?;
        Ok(fs::write(done, "")?)
    })
}
