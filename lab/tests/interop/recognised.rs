//! The holds of real libraries, as leasehold lists, shows and breaks them.
//!
//! A library acquires and releases a lock repeatedly, and is stopped at a moment at which it holds.
//!
//! Shows G-56.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::{DEADLINE, Testbed, foreign, suspended};
use lab_servers::{Redis, ZooKeeper};
use leasehold::{Entry, Name};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::WORKER;
use crate::redis_locks::client_command;
use crate::zookeeper::java;

/// The lease that the clients give their locks.
const LEASE: Duration = Duration::from_secs(30);

#[test]
fn hold_of_redis_py_is_recognised_and_broken() -> Result<()> {
    on_redis("redis_py", "a", "redis-py")
}

#[test]
fn hold_of_python_redis_lock_is_recognised_and_broken() -> Result<()> {
    on_redis("python_redis_lock", "lock:a", "python-redis-lock")
}

#[test]
fn hold_of_redsync_is_recognised_and_broken() -> Result<()> {
    on_redis("redsync", "a", "redsync")
}

#[test]
fn hold_of_node_redlock_is_recognised_and_broken() -> Result<()> {
    // One of 64 of its values has the form of redis-py's.
    on_redis("node_redlock", "a", "re")
}

#[test]
fn hold_of_kazoo_is_recognised_and_broken() -> Result<()> {
    let server = ZooKeeper::setup().tick(2_000).start();
    let peer = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/peers/kazoo_peer.py");
    let mut command = foreign::python(&peer);
    command.args([&*server.address(), "/locks/a", "mutex", "1", "1000000"]);
    on_zookeeper(&server, "?dialect=kazoo", command)
}

#[test]
fn hold_of_curator_is_recognised_and_broken() -> Result<()> {
    let server = ZooKeeper::setup().tick(2_000).start();
    let mut command = java();
    command.args([&*server.address(), "/locks/a", "mutex", "1", "1000000"]);
    command.arg(suspended().to_string());
    on_zookeeper(&server, "", command)
}

/// A process that is killed when the value is dropped.
struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn on_redis(client: &str, key: &str, library: &str) -> Result<()> {
    let redis = Redis::start();
    let mut command = client_command(client, &redis.url(), &["a"], 1_000_000)?;
    let exists = || Ok(redis.command(&["EXISTS", key]).int() == 1);
    let _stopped = stop_while_holding(command.stdout(Stdio::null()), exists)?;

    let testbed = Testbed::at(WORKER, &format!("{}?dialect=plain", redis.url()))?;
    let holder = shown_and_broken(&testbed, key)?;
    let program = &holder.info.program;
    ensure!(program.contains(library), "{program}");
    let left = holder.lease_left.context("the lease has an end")?;
    ensure!(left <= LEASE && left > LEASE / 2, "{left:?} are left");
    ensure!(redis.command(&["EXISTS", key]).int() == 0);
    Ok(())
}

fn on_zookeeper(server: &ZooKeeper, settings: &str, mut command: Command) -> Result<()> {
    let testbed = Testbed::at(WORKER, &format!("{}/locks{settings}", server.url()))?;
    let is_held = || Ok(testbed.inspect("a")?.holders().next().is_some());
    let _stopped = stop_while_holding(command.stdout(Stdio::null()), is_held)?;
    shown_and_broken(&testbed, "a")?;
    ensure!(testbed.inspect("a")?.entries.is_empty());
    Ok(())
}

/// Checks that a lock is listed with one holder, and breaks its hold. Another token breaks nothing.
fn shown_and_broken(testbed: &Testbed, name: &str) -> Result<Entry> {
    let locks = testbed.locks();
    let names = testbed.run(locks.list("", 10))?;
    ensure!(names.iter().map(Name::as_str).eq([name]), "{names:?}");
    let lock_state = testbed.inspect(name)?;
    let [holder] = &lock_state.entries[..] else {
        anyhow::bail!("{lock_state:?}")
    };

    let token = holder.token().context("it holds")?;
    let other = leasehold::Token::new(token.get() + 1).context("a token")?;
    ensure!(testbed.run(locks.break_hold(name, other))?.is_none());
    ensure!(testbed.run(locks.break_hold(name, token))?.is_some());
    Ok(holder.clone())
}

/// Starts a client, and stops it at a moment at which it holds the lock.
fn stop_while_holding(
    command: &mut Command,
    is_held: impl Fn() -> Result<bool>,
) -> Result<Stopped> {
    let client = Stopped(command.spawn().context("cannot start a client")?);
    let pid = Pid::from_child(&client.0);
    let begun = Instant::now();
    while begun.elapsed() < DEADLINE {
        if !is_held()? {
            continue;
        }
        kill_process(pid, Signal::STOP)?;
        // All threads of the client have stopped when this returns.
        waitpid(Some(pid), WaitOptions::UNTRACED)?;
        // A request that the client had sent before it stopped has been executed by then.
        if is_held()? && is_held()? {
            return Ok(client);
        }
        kill_process(pid, Signal::CONT)?;
    }
    anyhow::bail!("the client was never stopped while it held the lock")
}
