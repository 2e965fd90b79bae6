//! What the worker processes and the store use.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use lab_servers::{Redis, Reply, ZooKeeper};

use super::growth::Series;
use crate::backends::redis;
use crate::worker::number;
use crate::{Process, Testbed};

/// Two connections to a server that was unreachable at the start.
const DESCRIPTOR_SLACK: u64 = 4;
const THREAD_SLACK: u64 = 2;
/// In milliseconds: keys with a shorter life are not counted. Their number follows from the load.
const SHORT_LIFE: i64 = 60_000;

/// What one worker process uses over time.
#[derive(Debug)]
pub(super) struct WorkerSeries {
    pid: u32,
    descriptors: Series,
    threads: Series,
}

impl WorkerSeries {
    pub(super) fn of(worker: &Process) -> Self {
        let thread = worker.first_thread();
        let series = |what: &str, slack| Series::new(&format!("{what} of worker {thread}"), slack);
        Self {
            pid: worker.pid(),
            descriptors: series("descriptors", DESCRIPTOR_SLACK),
            threads: series("threads", THREAD_SLACK),
        }
    }

    /// Measures the process.
    ///
    /// # Errors
    /// If it has ended.
    pub(super) fn measure(&mut self) -> Result<()> {
        let process = format!("/proc/{}", self.pid);
        let status = fs::read_to_string(format!("{process}/status"))
            .context("a worker that no fault kills has ended")?;

        self.threads.push(number(&status, "Threads:")? as u64);
        let descriptors = fs::read_dir(format!("{process}/fd"))?;
        self.descriptors.push(descriptors.count() as u64);
        Ok(())
    }

    pub(super) fn check(&self) -> Result<()> {
        self.descriptors.check()?;
        self.threads.check()
    }
}

impl fmt::Display for WorkerSeries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.descriptors, self.threads)
    }
}

/// Counts the lasting keys of all Redis masters, the nodes of the first ZooKeeper server that
/// replies, and the files of a file store.
pub(super) fn entries(testbed: &Testbed) -> Result<u64> {
    let keys = redis::masters(testbed).into_iter().map(count_lasting_keys);
    let replies = |server: &&ZooKeeper| {
        let reply = server.request("mntr");
        reply.is_ok_and(|reply| reply.contains("zk_znode_count"))
    };
    let nodes = testbed
        .servers_of::<ZooKeeper>()
        .into_iter()
        .find(replies)
        .map_or(0, |server| server.count("zk_znode_count"));

    let folder = testbed.store();
    let files = if folder.exists() {
        count_files(&folder)?
    } else {
        0
    };
    Ok(keys.sum::<u64>() + nodes + files)
}

fn count_lasting_keys(server: &Redis) -> u64 {
    const NO_EXPIRY: i64 = -1;
    let keys = server.command(&["KEYS", "*"]);

    // A key of a Cluster may have moved to another master since.
    let lasts = |key: &&str| match server.request(&["PTTL", key]) {
        Reply::Int(life) => life == NO_EXPIRY || life > SHORT_LIFE,
        _ => false,
    };
    keys.texts().into_iter().filter(lasts).count() as u64
}

fn count_files(folder: &Path) -> Result<u64> {
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // A file may be removed between the two calls.
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        count += 1;
        if is_folder {
            count += count_files(&entry.path())?;
        }
    }
    Ok(count)
}
