//! The least work that does the same: the system calls themselves, as the limit beside the figures
//! of leasehold.

use std::fs::File;
use std::io::{self, Write, stdin, stdout};
use std::path::Path;

use anyhow::{Result, bail};
use rustix::fs::inotify;

use crate::{Peer, now, until};

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

/// Starts the program at the path `program`, which cargo passes only to benchmarks and tests.
///
/// Each line that it prints is a time. An empty line makes it continue.
///
/// # Errors
/// If the process cannot be started.
pub fn start(program: &str, what: &str, file: &Path) -> Result<Peer> {
    Peer::start(Peer::command(program).arg(what).arg(file))
}

/// Waits until a program waits for a file lock.
///
/// # Errors
/// If it does not before the deadline.
pub fn wait_until_waiting(process: &Peer) -> Result<()> {
    let pid = process.pid().to_string();
    until("a process to wait for flock(2)", || {
        let locks = std::fs::read_to_string("/proc/locks")?;
        let waits =
            |line: &str| line.contains("->") && line.split_whitespace().any(|word| word == pid);
        Ok(locks.lines().any(waits).then_some(()))
    })
}
