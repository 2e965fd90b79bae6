//! The `RLock` of Redisson itself, in a Java program.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::{Baseline, BaselineConfig};

/// A program with one client of Redisson. Dropping it kills the program.
pub(super) struct Redisson {
    child: Child,
    commands: ChildStdin,
    replies: BufReader<ChildStdout>,
    name: String,
}

impl Redisson {
    /// Starts the program, and waits until it is connected. The lease is that of the watchdog.
    pub(super) fn new(config: &BaselineConfig) -> Result<Self> {
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "java"])
            .args(["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .args([
                "-cp",
                &format!("{}:{}", library().display(), classes().display()),
            ])
            .arg("RedissonPeer")
            .arg(format!("redis://{}", config.server))
            .arg(config.lease_millis.to_string())
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
            name: config.name.clone(),
        };
        ensure!(peer.reply()? == "ready");
        Ok(peer)
    }

    fn request(&mut self, verb: &str, argument: &str) -> Result<String> {
        writeln!(self.commands, "{verb} lock {} {argument}", self.name)?;
        self.commands.flush()?;
        self.reply()
    }

    fn reply(&mut self) -> Result<String> {
        let mut line = String::new();
        let length = self.replies.read_line(&mut line)?;
        ensure!(length > 0, "the program with Redisson has ended");
        Ok(line.trim_end().to_owned())
    }
}

impl Baseline for Redisson {
    fn begin(&mut self) -> Result<()> {
        self.request("try", "").map(drop)
    }

    fn acquire(&mut self, timeout: Duration) -> Result<Option<u64>> {
        let reply = self.request("wait", &timeout.as_millis().to_string())?;
        match reply.as_str() {
            "true" => Ok(Some(0)),
            "false" => Ok(None),
            error => bail!("{error}"),
        }
    }

    /// Returns `true`. `isHeldByCurrentThread` needs a request to the server, and Redisson does not
    /// notify its user of a loss.
    fn holds(&mut self) -> bool {
        true
    }

    fn release(&mut self) -> Result<()> {
        let reply = self.request("unlock", "")?;
        let is_refused = reply.contains("IllegalMonitorStateException");
        ensure!(is_refused || !reply.starts_with("error"), "{reply}");
        Ok(())
    }
}

impl Drop for Redisson {
    fn drop(&mut self) {
        // The program may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Compiles the program. This happens once, before the processes of the baseline start.
pub(super) fn compile() -> Result<()> {
    let library = library();
    ensure!(library.exists(), "Redisson is missing: cargo xtask install");

    let compiled = Command::new("javac")
        .arg("-cp")
        .arg(&library)
        .arg("-d")
        .arg(classes())
        .arg(lab().join("tests/interop/peers/RedissonPeer.java"))
        .status()
        .context("javac is missing: `apt-get install default-jdk-headless`")?;
    ensure!(compiled.success(), "RedissonPeer.java does not compile");
    Ok(())
}

fn library() -> PathBuf {
    lab().join("../target/jars/redisson-all.jar")
}

fn classes() -> PathBuf {
    lab().join("../target/four-conditions-redisson")
}

fn lab() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
