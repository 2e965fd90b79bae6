//! A Java program with Redisson, which executes one command at a time.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lab_servers::Redis;

use crate::clock;

/// Redisson's default.
const WATCHDOG: Duration = Duration::from_secs(30);

/// The program, `lab/tests/interop/peers/RedissonPeer.java`. Dropping it kills the process.
#[derive(Debug)]
pub struct RedissonPeer {
    child: Child,
    commands: ChildStdin,
    replies: BufReader<ChildStdout>,
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
        let command = ["java", "-XX:TieredStopAtLevel=1"];
        Self::spawn(&command, addresses, watchdog, prefix)
    }

    /// Starts the program on one CPU, or on all of them, with all optimisations of the Java
    /// compiler. They need a warm-up.
    ///
    /// # Errors
    /// As [`start_at`](Self::start_at).
    pub fn start_optimised(addresses: &str, cpu: Option<usize>) -> Result<Self> {
        match cpu {
            None => Self::spawn(&["java"], addresses, WATCHDOG, ""),
            Some(cpu) => {
                let command = ["taskset", "-c", &cpu.to_string(), "java"];
                Self::spawn(&command, addresses, WATCHDOG, "")
            }
        }
    }

    fn spawn(command: &[&str], addresses: &str, watchdog: Duration, prefix: &str) -> Result<Self> {
        let class_path = class_path()?;
        let clock_offset = clock::suspended();
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .args(command)
            .args(["-Xmx96m", "-XX:+UseSerialGC"])
            .args(["-cp", class_path, "RedissonPeer"])
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
        writeln!(self.commands, "{command}")?;
        Ok(self.commands.flush()?)
    }

    /// Waits for the reply to a command.
    ///
    /// # Errors
    /// If the program has ended.
    pub fn reply(&mut self) -> Result<String> {
        let mut line = String::new();
        let length = self.replies.read_line(&mut line)?;
        ensure!(length > 0, "the program for Redisson has ended");
        Ok(line.trim_end().to_owned())
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
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for RedissonPeer {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the paths of the library and of the compiled program.
///
/// The first call of a process compiles the program, unless another process has done so. A process
/// that starts others which use the program calls it before.
///
/// # Errors
/// If Java or Redisson is missing.
pub fn class_path() -> Result<&'static str> {
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
