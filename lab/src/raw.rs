//! The least work that does the same: the system calls themselves, as the limit beside the figures
//! of leasehold.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write, stdin, stdout};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::inotify;

use crate::now;

/// Opens a file, locks it with flock(2), and closes it, which unlocks it.
///
/// # Errors
/// If a system call fails.
pub fn open_lock_close(path: &Path) -> io::Result<()> {
    open(path)?.lock()
}

/// Opens a file to lock, and creates it if it is missing.
///
/// # Errors
/// If the system call fails.
pub fn open(path: &Path) -> io::Result<File> {
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
}

/// Runs the `raw` program: `locker FILE`, `sleeper FILE` or `pairs FILE COUNT`.
///
/// # Errors
/// If the arguments are wrong or a system call fails.
pub fn run(args: &[String]) -> Result<()> {
    match args {
        [what, file] if what == "locker" => locker(Path::new(file)),
        [what, file] if what == "sleeper" => sleeper(Path::new(file)),
        [what, file, count] if what == "pairs" => pairs(Path::new(file), count.parse()?),
        _ => bail!("usage: raw locker FILE | sleeper FILE | pairs FILE COUNT"),
    }
}

/// Locks with flock(2) at one line on stdin and unlocks at the next. Prints when it has locked, and
/// when it begins to unlock.
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

/// Sleeps on inotify until the file is written, repeatedly, and prints when it woke. Prints 0
/// first.
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

/// A running `raw` program. Dropping it kills it.
#[derive(Debug)]
pub struct Raw {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Raw {
    /// Starts the program at the path `program`, which cargo passes only to benchmarks and tests.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn start(program: &str, what: &str, file: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command
            .arg(what)
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start the raw program")?;
        let stdout = BufReader::new(child.stdout.take().context("its stdout is a pipe")?);
        Ok(Self { child, stdout })
    }

    /// Sends a line, so that the program continues.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn send_signal(&mut self) -> Result<()> {
        Ok(self
            .child
            .stdin
            .as_mut()
            .context("its stdin is a pipe")?
            .write_all(b"\n")?)
    }

    /// The next time that the program prints.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn read_line(&mut self) -> Result<u64> {
        let mut line = String::new();
        ensure!(
            self.stdout.read_line(&mut line)? > 0,
            "the raw program ended"
        );
        Ok(line.trim_end().parse()?)
    }

    /// Waits until the program waits for a file lock.
    ///
    /// # Errors
    /// If it does not before the deadline.
    pub fn wait_until_waiting(&self) -> Result<()> {
        let pid = self.child.id().to_string();
        crate::until("a process to wait for flock(2)", || {
            let locks = std::fs::read_to_string("/proc/locks")?;
            let waits =
                |line: &str| line.contains("->") && line.split_whitespace().any(|word| word == pid);
            Ok(locks.lines().any(waits).then_some(()))
        })
    }

    /// Kills the process, and returns when.
    ///
    /// # Errors
    /// If the signal cannot be sent.
    pub fn kill(&mut self) -> Result<u64> {
        let at = now();
        self.child.kill()?;
        Ok(at)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
