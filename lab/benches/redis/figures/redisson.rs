//! The requests that Redisson's clients send while they wait, and after a crash.
//!
//! `RedissonWaiters.java` beside this folder runs the clients. The figures need its library, which
//! `cargo xtask bench` fetches to `target/jars`.

use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use lab::until;
use lab_servers::Redis;

use super::commands::Watch;
use super::count;
use super::waiting::LASTS;
use crate::cpus;
use crate::table::Rounds;

/// Measures the requests per second of each client, while `waiters` clients wait for one lock.
pub(super) fn rate(kind: &str, waiters: usize) -> Result<Rounds> {
    let server = cpus::server();
    let mut clients = Clients::start(&server, kind, waiters + 1, true)?;
    clients.wait_for("held")?;
    see_waiting(&server, kind, waiters)?;

    let watch = Watch::begin(&server)?;
    sleep(LASTS);
    let sent = watch.end(&server)?;

    let mut rounds = Rounds::default();
    rounds.add(count(sent) / count(waiters) / LASTS.as_secs_f64());
    Ok(rounds)
}

/// Measures a takeover after the holder and some waiters are killed together.
///
/// Returns the time until another client holds, and the number of requests that all clients send
/// until then.
pub(super) fn takeover(dying: u64) -> Result<(Rounds, Rounds)> {
    let dying = usize::try_from(dying)?;
    let server = cpus::server();
    let mut killed = Clients::start(&server, "lock", dying + 1, true)?;
    killed.wait_for("held")?;
    see_waiting(&server, "lock", dying)?;

    let mut next = Clients::start(&server, "lock", 1, false)?;
    see_waiting(&server, "lock", dying + 1)?;

    let watch = Watch::begin(&server)?;
    let killed_at = Instant::now();
    drop(killed);
    next.wait_for("granted")?;
    let took = killed_at.elapsed();
    let sent = watch.end(&server)?;

    let mut times = Rounds::default();
    times.add(took.as_secs_f64());
    let mut requests = Rounds::default();
    requests.add(count(sent));
    Ok((times, requests))
}

/// A process with clients of Redisson. Dropping it kills the process.
struct Clients {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Clients {
    fn start(server: &Redis, kind: &str, clients: usize, holds: bool) -> Result<Self> {
        let address = format!("redis://127.0.0.1:{}", server.port());
        let mut command = Command::new("java");
        command
            .arg("-cp")
            .arg(class_path()?)
            .args(["RedissonWaiters", &address, kind, &clients.to_string()])
            .args(holds.then_some("hold"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());

        let mut child = command.spawn().context("cannot start java")?;
        let stdout = child.stdout.take().context("its stdout is a pipe")?;
        let lines = BufReader::new(stdout).lines();
        Ok(Self { child, lines })
    }

    fn wait_for(&mut self, expected: &str) -> Result<()> {
        let line = self
            .lines
            .next()
            .context("Redisson's clients have ended")??;
        ensure!(line == expected, "expected {expected:?}, got {line:?}");
        Ok(())
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the class path of the library and the compiled program.
fn class_path() -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = root.join("../target/jars/redisson-all.jar");
    ensure!(
        library.exists(),
        "Redisson is missing: `cargo xtask bench redis` fetches it"
    );

    let classes = root.join("../target/bench/redisson");
    std::fs::create_dir_all(&classes)?;
    let compiled = Command::new("javac")
        .arg("-cp")
        .arg(&library)
        .arg("-d")
        .arg(&classes)
        .arg(root.join("benches/redis/java/RedissonWaiters.java"))
        .status()
        .context("javac is missing: `apt-get install default-jdk-headless`")?;
    ensure!(compiled.success(), "RedissonWaiters.java does not compile");

    let paths: [PathBuf; 2] = [library, classes];
    let joined = std::env::join_paths(paths)?;
    joined.into_string().ok().context("the path is not UTF-8")
}

/// Waits until all clients wait.
///
/// A waiter on an `RLock` has subscribed to its channel.
/// A waiter on an `RFairLock` is in its queue.
fn see_waiting(server: &Redis, kind: &str, waiters: usize) -> Result<()> {
    let wanted = i64::try_from(waiters)?;
    until("all clients of Redisson to wait", || {
        let waiting = if kind == "fair" {
            server.command(&["LLEN", "redisson_lock_queue:{r}"]).int()
        } else {
            let channel = "redisson_lock__channel:{r}";
            let reply = server.command(&["EVAL", NUMSUB, "0", channel]);
            reply.int()
        };
        Ok((waiting >= wanted).then_some(()))
    })
}

const NUMSUB: &str = "return redis.call('PUBSUB', 'NUMSUB', ARGV[1])[2]";
