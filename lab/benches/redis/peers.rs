//! The peers that the benchmark measures.
//!
//! A peer in Rust is a file here that implements [`Peer`], or [`Library`] for the common tasks. Its
//! name appears once below. A peer in another language is one file beside them that runs the tasks
//! of `workload.rs`. The first line of that file names the packages that it needs, and
//! `cargo xtask bench` installs them. A file in Java uses Redisson, which the tests need too.

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

peers!(
    raw,
    scripts,
    quorum,
    leasehold,
    leasehold_cohort,
    leasehold_logged,
    leasehold_metered,
    leasehold_traced,
    rslock
);

/// One client of a server.
pub(crate) trait Peer {
    /// Runs a task; returns `None` if the peer does not know the task.
    fn run(&mut self, task: &Workload) -> Result<Option<Vec<u64>>>;
}

/// Runs the tasks that arrive on stdin, as one peer.
pub(crate) fn serve(peer: &str, url: &str) -> Result<()> {
    let (_, connect) = IN_RUST
        .iter()
        .find(|(name, _)| *name == peer)
        .with_context(|| format!("peer {peer} does not exist"))?;
    let mut peer = connect(url)?;
    for line in stdin().lock().lines() {
        let reply = peer.run(&serde_json::from_str(&line?)?)?;
        let mut stdout = stdout().lock();
        writeln!(stdout, "{}", serde_json::to_string(&reply)?)?;
        stdout.flush()?;
    }
    Ok(())
}

/// Returns the names of all libraries to compare with.
pub(crate) fn others() -> Result<Vec<String>> {
    let own = [
        "raw",
        "scripts",
        "quorum",
        "leasehold",
        "leasehold_cohort",
        "leasehold_logged",
        "leasehold_metered",
        "leasehold_traced",
    ];
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

/// Returns the command that starts a peer, without the URL of its server.
pub(crate) fn command(peer: &str) -> Result<Vec<OsString>> {
    if IN_RUST.iter().any(|(name, _)| *name == peer) {
        return Ok(vec![env::current_exe()?.into(), "peer".into(), peer.into()]);
    }
    let file = foreign_files()?.into_iter().find(|path| stem(path) == peer);
    let file = file.with_context(|| format!("peer {peer:?} does not exist"))?;
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("py") => Ok(vec!["python3".into(), file.into()]),
        // Java compiles the file in memory.
        Some("java") => Ok(vec![
            "java".into(),
            "-cp".into(),
            target().join("jars/redisson-all.jar").into(),
            file.into(),
        ]),
        Some("js") => Ok(vec!["node".into(), file.into()]),
        Some("go") => Ok(vec![fetched(peer).join("client").into()]),
        _ => bail!("cannot run {}: unknown file extension", file.display()),
    }
}

/// Sets the paths on which peers in other languages find their modules.
pub(crate) fn environment(peer: &str, command: &mut Command) {
    let python = format!(
        "{0}/benches/redis/python:{0}/../target/peers/python",
        env!("CARGO_MANIFEST_DIR")
    );

    command
        .env("PYTHONPATH", python)
        .env("NODE_PATH", fetched(peer).join("node_modules"));
}

/// The folder of what a peer in JavaScript or Go needs.
fn fetched(peer: &str) -> PathBuf {
    target().join("peers").join(format!("bench-{peer}"))
}

fn target() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../target"))
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
