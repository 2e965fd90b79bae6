//! The least that could do: what the system itself needs, as the limit our figures stand beside.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write, stdin, stdout};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::inotify;

use crate::now;

/// Opens, locks with flock(2), and closes, which unlocks.
///
/// # Errors
/// As the system says.
pub fn open_lock_close(path: &Path) -> io::Result<()> {
    open(path)?.lock()
}

/// A file to lock, made if missing.
///
/// # Errors
/// As the system says.
pub fn open(path: &Path) -> io::Result<File> {
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
}

/// What the `raw` program does: `locker FILE`, `sleeper FILE` or `pairs FILE COUNT`.
///
/// # Errors
/// As the system says.
pub fn run(args: &[String]) -> Result<()> {
    match args {
        [what, file] if what == "locker" => locker(Path::new(file)),
        [what, file] if what == "sleeper" => sleeper(Path::new(file)),
        [what, file, count] if what == "pairs" => pairs(Path::new(file), count.parse()?),
        _ => bail!("usage: raw locker FILE | sleeper FILE | pairs FILE COUNT"),
    }
}

/// At each line locks with flock(2), and at the next unlocks; tells when it has locked, and when it begins to unlock.
fn locker(path: &Path) -> Result<()> {
    let file = open(path)?;
    while wait_for_signal()? {
        file.lock()?;
        print(now())?;
        wait_for_signal()?;
        let begun = now();
        file.unlock()?;
        print(begun)?;
    }
    Ok(())
}

/// Sleeps on inotify until the file is written to, over and over; tells when it awoke. Begins with a line of 0.
fn sleeper(path: &Path) -> Result<()> {
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC)?;
    inotify::add_watch(&watch, path, inotify::WatchFlags::MODIFY)?;
    print(0)?;
    while rustix::io::read(&watch, &mut [0; 4096])? > 0 {
        print(now())?;
    }
    Ok(())
}

fn pairs(path: &Path, count: u64) -> Result<()> {
    Ok((0..count).try_for_each(|_| open_lock_close(path))?)
}

fn wait_for_signal() -> Result<bool> {
    Ok(stdin().read_line(&mut String::new())? > 0)
}

fn print(at: u64) -> Result<()> {
    Ok(stdout().write_all(format!("{at}\n").as_bytes())?)
}

/// A running `raw`. Dropping it kills it.
#[derive(Debug)]
pub struct Raw {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Raw {
    /// Starts one; `program` is its path, which only a benchmark knows.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(program: &str, what: &str, file: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command
            .arg(what)
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start the raw program")?;
        let output = BufReader::new(child.stdout.take().context("its stdout is a pipe")?);
        Ok(Self {
            child,
            says: output,
        })
    }

    /// Gives it the word to go on.
    ///
    /// # Errors
    /// If it is dead.
    pub fn send_signal(&mut self) -> Result<()> {
        Ok(self
            .child
            .stdin
            .as_mut()
            .context("its stdin is a pipe")?
            .write_all(b"\n")?)
    }

    /// The next time it tells of.
    ///
    /// # Errors
    /// If it is dead.
    pub fn read_line(&mut self) -> Result<u64> {
        let mut line = String::new();
        ensure!(self.says.read_line(&mut line)? > 0, "it ended");
        Ok(line.trim_end().parse()?)
    }

    /// Waits until it waits for a file lock.
    ///
    /// # Errors
    /// If it does not.
    pub fn wait_until_waiting(&self) -> Result<()> {
        let pid = self.child.id().to_string();
        crate::until("a process to wait for flock(2)", || {
            let locks = std::fs::read_to_string("/proc/locks")?;
            let waits =
                |line: &str| line.contains("->") && line.split_whitespace().any(|word| word == pid);
            Ok(locks.lines().any(waits).then_some(()))
        })
    }

    /// Kills it; when that was.
    ///
    /// # Errors
    /// As the system says.
    pub fn kill(&mut self) -> Result<u64> {
        let at = now();
        self.child.kill()?;
        Ok(at)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // It may be dead and buried already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
