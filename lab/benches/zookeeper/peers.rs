//! The peers that the benchmark measures. Each peer has two clients, with one session each.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lab::foreign;
use lab_servers::ZooKeeper;
use leasehold::Locks;
use tokio::runtime::Runtime;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions};

const NODE: CreateOptions<'static> = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());

/// The operation that a benchmark measures.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Workload {
    /// Acquire and release when no other client wants the lock.
    Pairs,
    /// A hand-over: from the moment at which one client begins to release until the waiter receives
    /// its grant.
    HandOvers,
}

/// A library or program that the benchmark measures.
pub(crate) trait Peer {
    fn run(&mut self, task: Workload, count: usize) -> Result<Vec<Duration>>;
}

/// leasehold, with its async API.
pub(crate) struct Leasehold<'a> {
    runtime: &'a Runtime,
    near: Locks,
    far: Locks,
}

impl<'a> Leasehold<'a> {
    pub(crate) fn connect(runtime: &'a Runtime, server: &ZooKeeper) -> Result<Self> {
        let open = || runtime.block_on(leasehold::open(&server.url()));
        Ok(Self {
            runtime,
            near: open()?,
            far: open()?,
        })
    }

    async fn pair(&self) -> Result<Duration> {
        let lock = self.near.mutex("a");
        let begun = Instant::now();
        lock.acquire().await?.release().await?;
        Ok(begun.elapsed())
    }

    async fn hand_over(&self) -> Result<Duration> {
        let held = self.near.mutex("h").acquire().await?;
        let lock = self.far.mutex("h");
        let waiting =
            tokio::spawn(async move { lock.acquire().await.map(|guard| (guard, Instant::now())) });
        while self.near.inspect("h").await?.waiters().count() == 0 {}
        // The waiter sets its watch a moment after it has created its node.
        tokio::time::sleep(Duration::from_millis(2)).await;
        let released = Instant::now();
        held.release().await?;
        let (guard, granted) = waiting.await??;
        guard.release().await?;
        Ok(granted - released)
    }
}

impl Peer for Leasehold<'_> {
    fn run(&mut self, task: Workload, count: usize) -> Result<Vec<Duration>> {
        let times = (0..count).map(|_| match task {
            Workload::Pairs => self.runtime.block_on(self.pair()),
            Workload::HandOvers => self.runtime.block_on(self.hand_over()),
        });
        times.collect()
    }
}

/// The least that the servers must do for a lock, over the same client library.
///
/// A pair is the creation and deletion of a node. A hand-over is the notification of a watch.
pub(crate) struct Bare<'a> {
    runtime: &'a Runtime,
    one: Client,
    other: Client,
}

impl<'a> Bare<'a> {
    pub(crate) fn connect(runtime: &'a Runtime, server: &ZooKeeper) -> Result<Self> {
        let connect = || runtime.block_on(Client::connect(&server.address()));
        let one = connect()?;
        let other = connect()?;
        runtime.block_on(one.mkdir(
            "/bare",
            &CreateMode::Persistent.with_acls(Acls::anyone_all()),
        ))?;
        Ok(Self {
            runtime,
            one,
            other,
        })
    }

    async fn pair(&self) -> Result<Duration> {
        let begun = Instant::now();
        let (_, sequence) = self.one.create("/bare/n-", b"", &NODE).await?;
        self.one
            .delete(&format!("/bare/n-{sequence}"), None)
            .await?;
        Ok(begun.elapsed())
    }

    async fn hop(&self) -> Result<Duration> {
        let (_, sequence) = self.one.create("/bare/n-", b"", &NODE).await?;
        let path = format!("/bare/n-{sequence}");
        let (_, _, watcher) = self.other.get_and_watch_data(&path).await?;
        let noticed = tokio::spawn(async move {
            watcher.changed().await;
            Instant::now()
        });
        tokio::time::sleep(Duration::from_millis(2)).await;
        let deleted = Instant::now();
        self.one.delete(&path, None).await?;
        Ok(noticed.await? - deleted)
    }
}

impl Peer for Bare<'_> {
    fn run(&mut self, task: Workload, count: usize) -> Result<Vec<Duration>> {
        let times = (0..count).map(|_| match task {
            Workload::Pairs => self.runtime.block_on(self.pair()),
            Workload::HandOvers => self.runtime.block_on(self.hop()),
        });
        times.collect()
    }
}

/// A program in another language, which reads its tasks from stdin and prints its times.
pub(crate) struct Foreign {
    child: Child,
    stdin: ChildStdin,
    printed: Lines<BufReader<ChildStdout>>,
}

impl Foreign {
    pub(crate) fn kazoo(server: &ZooKeeper) -> Result<Self> {
        Self::start(foreign::python(&file("kazoo_line.py")), server)
    }

    pub(crate) fn curator(server: &ZooKeeper) -> Result<Self> {
        let mut java = Command::new("java");
        java.args(["-cp", &foreign::curator()])
            .arg(file("CuratorLine.java"))
            .stderr(Stdio::null());
        Self::start(java, server)
    }

    fn start(mut command: Command, server: &ZooKeeper) -> Result<Self> {
        command
            .arg(server.address())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a peer")?;
        let stdin = child.stdin.take().context("its stdin is a pipe")?;
        let stdout = child.stdout.take().context("its stdout is a pipe")?;
        Ok(Self {
            child,
            stdin,
            printed: BufReader::new(stdout).lines(),
        })
    }
}

fn file(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("benches/zookeeper/peers")
        .join(name)
}

impl Peer for Foreign {
    fn run(&mut self, task: Workload, count: usize) -> Result<Vec<Duration>> {
        let task = match task {
            Workload::Pairs => "pairs",
            Workload::HandOvers => "hand_overs",
        };
        writeln!(self.stdin, "{task} {count}")?;
        let line = self.printed.next().context("a peer has ended")??;
        line.split(' ')
            .map(|nanos| Ok(Duration::from_nanos(nanos.parse()?)))
            .collect()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // The process may have ended already. An error is harmless then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
