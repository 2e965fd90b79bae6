//! The peers that the benchmark measures.
//!
//! A peer in Rust is a lock library with the tasks of [`tasks`]. A peer in another language is a
//! file here that runs the tasks of `workload.rs`. The first line of that file names the packages
//! that it needs, and `cargo xtask bench` installs them. The peers in Java are one program with
//! Redisson, Curator and `ShedLock`, which the lab needs too.

mod files;
mod libraries;
mod postgres;
mod raw;
mod tasks;
mod zookeeper;

use std::env;
use std::ffi::OsString;
use std::io::{BufRead, Write, stdin, stdout};
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::workload::Workload;
use files::Files;
use libraries::{Leasehold, Rslock};
use postgres::{Functions, LeaseTable, Notifications, SessionLocks, Sqlx, Transactions, Updates};
use raw::{Quorum, Raw};
use tasks::Tasks;
pub(crate) use tasks::nanos;
use zookeeper::Nodes;

/// The limit on Redis, the requests of leasehold over the same socket, leasehold, and the other
/// libraries.
pub(crate) const ON_REDIS: [&str; 9] = [
    "raw",
    "scripts",
    "leasehold",
    "rslock",
    "node_redlock",
    "python_redis_lock",
    "redis_py",
    "redisson",
    "redsync",
];

/// The limit on PostgreSQL, the functions of leasehold's schema, leasehold, locks that write a row,
/// and locks of a session, which write nothing.
pub(crate) const ON_POSTGRES: [&str; 7] = [
    "updates",
    "functions",
    "leasehold",
    "lease_table",
    "shedlock",
    "pg_advisory_lock",
    "sqlx",
];

/// The limit on ZooKeeper, leasehold, and the other libraries.
pub(crate) const ON_ZOOKEEPER: [&str; 4] = ["nodes", "leasehold", "curator", "kazoo_lock"];

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
        "scripts" => Box::new(Raw::of_leasehold(url)?),
        "quorum" => Box::new(Quorum::connect(url)?),
        "flock" => Box::new(Files::in_folder(url)),
        "leasehold" => Box::new(Tasks::connect(Leasehold::open(url, None))?),
        "leasehold_memory" => Box::new(Tasks::connect(Leasehold::open("memory:", None))?),
        "leasehold_cohort" => Box::new(Tasks::connect(Leasehold::open(url, Some(PASSES_MAX)))?),
        "rslock" => Box::new(Tasks::connect(async { Ok(Rslock::new(url)) })?),
        "nodes" => Box::new(Tasks::connect(Nodes::connect(url))?),
        "updates" => Box::new(Tasks::connect(Updates::connect(url))?),
        "functions" => Box::new(Tasks::connect(Functions::connect(url))?),
        "lease_table" => Box::new(Tasks::connect(LeaseTable::connect(url))?),
        "pg_advisory_lock" => Box::new(Tasks::connect(SessionLocks::connect(url))?),
        "sqlx" => Box::new(Tasks::connect(Sqlx::connect(url))?),
        "notifications" => Box::new(Notifications::connect(url)?),
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
        "redis_py" | "python_redis_lock" | "kazoo_lock" => {
            vec!["python3".into(), file("py").into()]
        }
        "node_redlock" => vec!["node".into(), file("js").into()],
        "redsync" => vec![fetched(peer).join("client").into()],
        // Java compiles the file in memory.
        "redisson" | "curator" | "shedlock" => vec![
            "java".into(),
            "-cp".into(),
            // Curator's JARs name older versions of what Redisson has in it.
            format!(
                "{}/*:{}",
                target().join("jars").display(),
                lab::foreign::curator()
            )
            .into(),
            folder().join("JavaPeer.java").into(),
            peer.into(),
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
