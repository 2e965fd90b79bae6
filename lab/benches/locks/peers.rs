//! The peers that the benchmark measures.
//!
//! A peer in Rust is a lock library with the tasks of [`tasks`]. A peer in another language is a
//! file here that runs the tasks of `workload.rs`. The first line of that file names the packages
//! that it needs, and `cargo xtask bench` installs them. The peer in Java uses Redisson, which the
//! tests need too.

mod files;
mod libraries;
mod postgres;
mod raw;
mod tasks;

use std::env;
use std::ffi::OsString;
use std::io::{BufRead, Write, stdin, stdout};
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::workload::Workload;
use files::Files;
use libraries::{Leasehold, Rslock};
use postgres::{SessionLocks, Transactions, Updates};
use raw::Raw;
use tasks::Tasks;
pub(crate) use tasks::nanos;

/// The limit on Redis, leasehold, and the other libraries.
pub(crate) const ON_REDIS: [&str; 8] = [
    "raw",
    "leasehold",
    "rslock",
    "node_redlock",
    "python_redis_lock",
    "redis_py",
    "redisson",
    "redsync",
];

/// The limit on PostgreSQL, leasehold, and a lock of a session, which writes nothing.
pub(crate) const ON_POSTGRES: [&str; 3] = ["updates", "leasehold", "pg_advisory_lock"];

/// How the peers begin that execute transactions of two updates.
pub(crate) const TRANSACTIONS: &str = "two updates, ";

/// The passes of a hold that a grant permits to `leasehold_cohort`.
const PASSES_MAX: u32 = 1_000;

/// One client of a server.
trait Peer {
    /// Runs a task; returns `None` if the peer does not know the task.
    fn run(&mut self, task: &Workload) -> Result<Option<Vec<u64>>>;
}

/// Runs the tasks that arrive on stdin, as one peer.
pub(crate) fn serve(peer: &str, url: &str) -> Result<()> {
    let mut peer: Box<dyn Peer> = match peer {
        "raw" => Box::new(Raw::connect(url)?),
        "flock" => Box::new(Files::in_folder(url)),
        "leasehold" => Box::new(Tasks::connect(Leasehold::open(url, None))?),
        "leasehold_memory" => Box::new(Tasks::connect(Leasehold::open("memory:", None))?),
        "leasehold_cohort" => Box::new(Tasks::connect(Leasehold::open(url, Some(PASSES_MAX)))?),
        "rslock" => Box::new(Tasks::connect(async { Ok(Rslock::new(url)) })?),
        "updates" => Box::new(Tasks::connect(Updates::connect(url))?),
        "pg_advisory_lock" => Box::new(Tasks::connect(SessionLocks::connect(url))?),
        _ => match peer.strip_prefix(TRANSACTIONS) {
            Some(kind) => Box::new(Tasks::connect(Transactions::connect(kind, url))?),
            None => bail!("peer {peer} does not exist"),
        },
    };

    for line in stdin().lock().lines() {
        let reply = peer.run(&serde_json::from_str(&line?)?)?;
        let mut stdout = stdout().lock();
        writeln!(stdout, "{}", serde_json::to_string(&reply)?)?;
        stdout.flush()?;
    }
    Ok(())
}

/// Returns the command that starts a peer, without the URL of its server.
pub(crate) fn command(peer: &str) -> Result<Vec<OsString>> {
    let file = |extension: &str| folder().join(peer).with_extension(extension);
    Ok(match peer {
        "redis_py" | "python_redis_lock" => vec!["python3".into(), file("py").into()],
        "node_redlock" => vec!["node".into(), file("js").into()],
        "redsync" => vec![fetched(peer).join("client").into()],
        // Java compiles the file in memory.
        "redisson" => vec![
            "java".into(),
            "-cp".into(),
            target().join("jars/redisson-all.jar").into(),
            folder().join("RedissonPeer.java").into(),
        ],
        _ => vec![env::current_exe()?.into(), "peer".into(), peer.into()],
    })
}

/// Returns the variables with the paths on which peers in other languages find their modules.
pub(crate) fn environment(peer: &str) -> [(&'static str, String); 2] {
    let shared = folder().with_file_name("python");
    let python = format!("{}:{}/peers/python", shared.display(), target().display());
    let node = fetched(peer).join("node_modules").display().to_string();
    [("PYTHONPATH", python), ("NODE_PATH", node)]
}

/// The folder of what a peer in JavaScript or Go needs.
fn fetched(peer: &str) -> PathBuf {
    target().join("peers").join(format!("bench-{peer}"))
}

fn target() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target"))
}

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/locks/peers"))
}
