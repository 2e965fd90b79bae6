//! A Java program with Redisson, which executes one command at a time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lab_servers::Redis;

use crate::{Peer, clock};

/// The program, `lab/tests/interop/peers/RedissonPeer.java`. Dropping it kills the process.
#[derive(Debug)]
pub struct RedissonPeer {
    process: Peer,
    /// How far the clock of the events is ahead of Java's, in nanoseconds.
    clock_offset: u64,
}

impl RedissonPeer {
    /// Starts the program on one server, and waits until it is connected.
    ///
    /// # Errors
    /// As [`start_at`](Self::start_at).
    pub fn start(redis: &Redis, watchdog: Duration, prefix: &str) -> Result<Self> {
        Self::start_at(&format!("redis://{}", redis.address()), watchdog, prefix)
    }

    /// Starts the program as [`start`](Self::start) does, with the address of a server, those of
    /// several sentinels, or `cluster:` and those of nodes.
    ///
    /// # Errors
    /// If Java or Redisson is missing, or the program cannot connect.
    pub fn start_at(addresses: &str, watchdog: Duration, prefix: &str) -> Result<Self> {
        let mut java = Peer::command("java");
        java.args(["-XX:TieredStopAtLevel=1", "-Xmx96m", "-XX:+UseSerialGC"])
            .args(["-cp", class_path()?, "RedissonPeer", addresses])
            .args([&watchdog.as_millis().to_string(), prefix])
            .stderr(Stdio::null());

        let clock_offset = clock::suspended();
        let mut process = Peer::start(&mut java)?;
        ensure!(process.receive_line()? == "ready");
        Ok(Self {
            process,
            clock_offset,
        })
    }

    /// Executes a command and returns its reply.
    ///
    /// # Errors
    /// If the program has ended.
    pub fn request(&mut self, command: &str) -> Result<String> {
        self.send(command)?;
        self.reply()
    }

    /// Executes a command, whose reply must be this one.
    ///
    /// # Errors
    /// If the reply is another, or the program has ended.
    pub fn expect(&mut self, command: &str, expected: &str) -> Result<()> {
        let reply = self.request(command)?;
        ensure!(reply == expected, "{command}: {reply}");
        Ok(())
    }

    /// Sends a command without waiting for its reply.
    ///
    /// # Errors
    /// If the program has ended.
    pub fn send(&mut self, command: &str) -> Result<()> {
        self.process.send_line(command)
    }

    /// Waits for the reply to a command.
    ///
    /// # Errors
    /// If the program has ended.
    pub fn reply(&mut self) -> Result<String> {
        self.process.receive_line()
    }

    /// Converts a time that the program printed to the clock of the events.
    ///
    /// # Errors
    /// If the text is not a number.
    pub fn time(&self, printed: &str) -> Result<u64> {
        let nanos: u64 = printed.parse().with_context(|| printed.to_owned())?;
        Ok(nanos + self.clock_offset)
    }

    /// Kills the program with SIGKILL.
    ///
    /// # Errors
    /// If it has already ended.
    pub fn kill(self) -> Result<()> {
        self.process.kill().map(drop)
    }
}

/// Returns the paths of the library and of the compiled program.
///
/// The first call of a process compiles the program, unless another process has done so.
fn class_path() -> Result<&'static str> {
    static CLASS_PATH: LazyLock<Result<String, String>> =
        LazyLock::new(|| compiled().map_err(|error| format!("{error:#}")));

    match &*CLASS_PATH {
        Ok(path) => Ok(path),
        Err(error) => bail!("{error}"),
    }
}

fn compiled() -> Result<String> {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = lab.join("../target/jars/redisson-all.jar");
    ensure!(library.exists(), "Redisson is missing: cargo xtask install");

    let source = lab.join("tests/interop/peers/RedissonPeer.java");
    let classes = lab.join("../target/redisson-peer");
    if !is_newer(&classes.join("RedissonPeer.class"), &source) {
        compile(&library, &source, &classes)?;
    }
    Ok(format!("{}:{}", library.display(), classes.display()))
}

/// Compiles the program in a folder of this process, which then takes its place.
fn compile(library: &Path, source: &Path, classes: &Path) -> Result<()> {
    let folder = PathBuf::from(format!("{}.{}", classes.display(), std::process::id()));
    let is_compiled = Command::new("javac")
        .arg("-cp")
        .arg(library)
        .arg("-d")
        .arg(&folder)
        .arg(source)
        .status()
        .context("javac is missing: `apt-get install default-jdk-headless`")?
        .success();
    ensure!(is_compiled, "RedissonPeer.java cannot be compiled");

    fs::create_dir_all(classes)?;
    for entry in fs::read_dir(&folder)? {
        let entry = entry?;
        fs::rename(entry.path(), classes.join(entry.file_name()))?;
    }
    Ok(fs::remove_dir(&folder)?)
}

/// Whether a file exists and was written after another.
fn is_newer(one: &Path, other: &Path) -> bool {
    let written_at = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified());

    match (written_at(one), written_at(other)) {
        (Ok(one), Ok(other)) => one > other,
        _ => false,
    }
}
