//! Who is measured. A peer in Rust is a file here that implements [`Peer`], or a [`Library`] for the common tasks, and is
//! named once below. A peer in another language is one file beside them that does the tasks of `workload.rs`, with what it
//! needs in its first line, which `cargo xtask bench` installs.

mod bare;
mod library;

use std::env;
use std::ffi::OsString;
use std::io::{BufRead, Write, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workload::Workload;
pub(crate) use library::{Library, Tasks, nanos};

type Connect = fn(&str) -> Result<Box<dyn Peer>>;

macro_rules! peers {
    ($($name:ident),+) => {
        $(mod $name;)+
        /// The peers in Rust, by the names of their files.
        const IN_RUST: &[(&str, Connect)] = &[$((stringify!($name), $name::connect)),+];
    };
}

peers!(raw, scripts, quorum, leasehold, rslock);

/// One client of a server.
pub(crate) trait Peer {
    /// Does a task; `None` if it knows no such task.
    fn run(&mut self, task: &Workload) -> Result<Option<Vec<u64>>>;
}

/// Does what stdin tells, as one peer.
pub(crate) fn serve(peer: &str, url: &str) -> Result<()> {
    let (_, connect) = IN_RUST
        .iter()
        .find(|(name, _)| *name == peer)
        .with_context(|| format!("no peer is {peer}"))?;
    let mut peer = connect(url)?;
    for line in stdin().lock().lines() {
        let reply = peer.run(&serde_json::from_str(&line?)?)?;
        let mut stdout = stdout().lock();
        writeln!(stdout, "{}", serde_json::to_string(&reply)?)?;
        stdout.flush()?;
    }
    Ok(())
}

/// All libraries to compare with, by name.
pub(crate) fn others() -> Result<Vec<String>> {
    let own = ["raw", "scripts", "quorum", "ours"];
    let in_rust = IN_RUST
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .filter(|name| !own.contains(&name.as_str()));
    let mut others: Vec<String> = in_rust.collect();
    let mut foreign: Vec<String> = foreign_files()?.iter().map(|path| stem(path)).collect();
    foreign.sort();
    others.append(&mut foreign);
    Ok(others)
}

/// The command that is a peer, but for the URL of its server.
pub(crate) fn command(peer: &str) -> Result<Vec<OsString>> {
    if IN_RUST.iter().any(|(name, _)| *name == peer) {
        return Ok(vec![env::current_exe()?.into(), "peer".into(), peer.into()]);
    }
    let file = foreign_files()?.into_iter().find(|path| stem(path) == peer);
    let file = file.with_context(|| format!("no peer is called {peer:?}"))?;
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("py") => Ok(vec!["python3".into(), file.into()]),
        _ => bail!("nobody knows how to run {}", file.display()),
    }
}

/// Lets peers in other languages find what they share.
pub(crate) fn environment(command: &mut Command) {
    command.env(
        "PYTHONPATH",
        format!(
            "{0}/benches/redis/python:{0}/../target/peers/python",
            env!("CARGO_MANIFEST_DIR")
        ),
    );
}

fn foreign_files() -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension != "rs") {
            files.push(path);
        }
    }
    Ok(files)
}

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/redis/peers"))
}

fn stem(path: &Path) -> String {
    path.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
