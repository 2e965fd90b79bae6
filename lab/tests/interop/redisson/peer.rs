//! A Java program with Redisson, which executes one command at a time.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab_servers::Redis;

use crate::redis_locks::suspended;

/// The program. Dropping it kills the process.
pub(super) struct Peer {
    child: Child,
    commands: ChildStdin,
    replies: BufReader<ChildStdout>,
    /// How far the clock of the events is ahead of Java's, in nanoseconds.
    clock_offset: u64,
}

impl Peer {
    /// Starts the program, and waits until it is connected.
    pub(super) fn start(redis: &Redis, watchdog: Duration, prefix: &str) -> Result<Self> {
        Self::start_at(&format!("redis://{}", redis.address()), watchdog, prefix)
    }

    /// Starts the program as [`start`](Self::start) does, with the address of a server, or those of
    /// several sentinels.
    pub(super) fn start_at(addresses: &str, watchdog: Duration, prefix: &str) -> Result<Self> {
        let clock_offset = suspended();
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "java"])
            .args(["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .args(["-cp", &CLASS_PATH, "RedissonPeer"])
            .arg(addresses)
            .args([&watchdog.as_millis().to_string(), prefix])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("java is missing")?;

        let commands = child.stdin.take().context("its stdin is a pipe")?;
        let replies = child.stdout.take().context("its stdout is a pipe")?;
        let mut peer = Self {
            child,
            commands,
            replies: BufReader::new(replies),
            clock_offset,
        };
        ensure!(peer.reply()? == "ready");
        Ok(peer)
    }

    /// Executes a command and returns its reply.
    pub(super) fn request(&mut self, command: &str) -> Result<String> {
        self.send(command)?;
        self.reply()
    }

    /// Executes a command, whose reply must be this one.
    pub(super) fn expect(&mut self, command: &str, expected: &str) -> Result<()> {
        let reply = self.request(command)?;
        ensure!(reply == expected, "{command}: {reply}");
        Ok(())
    }

    pub(super) fn send(&mut self, command: &str) -> Result<()> {
        writeln!(self.commands, "{command}")?;
        Ok(self.commands.flush()?)
    }

    pub(super) fn reply(&mut self) -> Result<String> {
        let mut line = String::new();
        let length = self.replies.read_line(&mut line)?;
        ensure!(length > 0, "the program for Redisson has ended");
        Ok(line.trim_end().to_owned())
    }

    /// Converts a time that the program printed to the clock of the events.
    pub(super) fn time(&self, printed: &str) -> Result<u64> {
        let nanos: u64 = printed.parse().with_context(|| printed.to_owned())?;
        Ok(nanos + self.clock_offset)
    }

    /// Kills the program with SIGKILL.
    pub(super) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The library and the compiled program.
static CLASS_PATH: LazyLock<String> = LazyLock::new(|| {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = lab.join("../target/jars/redisson-all.jar");
    assert!(library.exists(), "Redisson is missing: cargo xtask install");

    let classes = Path::new(env!("CARGO_TARGET_TMPDIR")).join("redisson");
    let compiled = Command::new("javac")
        .arg("-cp")
        .arg(&library)
        .arg("-d")
        .arg(&classes)
        .arg(lab.join("tests/interop/peers/RedissonPeer.java"))
        .status()
        .expect("javac is missing: `apt-get install default-jdk-headless`");
    assert!(compiled.success(), "RedissonPeer.java cannot be compiled");
    format!("{}:{}", library.display(), classes.display())
});
