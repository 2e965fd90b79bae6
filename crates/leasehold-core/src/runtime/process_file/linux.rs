//! Files from which a client learns that another process of its machine has ended.
//!
//! A client on a network store keeps a file of its name locked, in a folder of its user in
//! `/dev/shm`. The kernel unlocks the file when no process has it open. So the process has ended if
//! its file is unlocked *and* no process has its id and its start time. Either alone proves
//! nothing: a process may close all descriptors and work on, and a child may go on with a claim of
//! its parent, whose lock it has inherited.
//!
//! A file counts on the machine that made it, and there in the PID namespace that it names. Ids of
//! machines are not compared, because the clones of a memory snapshot have the same. Everything
//! else, such as a missing file or a folder of another user, means that nothing is known: a crash
//! is then noticed by its missing connection.

use std::fs::File;
use std::io::{self, Error, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, FsWord, Mode, OFlags, Stat, flock, fstat, fstatfs,
    linkat, mkdirat, open, openat, readlink, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, geteuid, getpid, pidfd_open};

/// `f_type` of a file system that no reboot outlives.
const TMPFS_MAGIC: FsWord = 0x0102_1994;
/// Only this user may read or change the files.
const PRIVATE: u32 = 0o700;
/// After this time no store has a claim of a process that has ended, or its grace is over too.
const KEPT: Duration = Duration::from_secs(3_600);
/// How many old files a new client looks at.
const SWEPT_MAX: usize = 1_000;
/// More than the identity of a process takes.
const LEN_MAX: u64 = 256;

/// The locked file of one client of this process. Dropping it removes the file.
#[derive(Debug)]
pub(super) struct LockedFile {
    folder: OwnedFd,
    client: String,
    pid: Pid,
    /// The lock.
    _file: File,
}

impl LockedFile {
    pub(super) fn create(client: &str) -> io::Result<Self> {
        let path = folder_path();
        match mkdirat(CWD, &path, Mode::from_raw_mode(PRIVATE)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let folder = open_folder(&path)?;
        // A folder that cannot be listed is not cleaned.
        let _ = sweep(&folder);

        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let mut file = File::from(openat(&folder, ".", flags, Mode::RUSR | Mode::WUSR)?);
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.write_all(ProcessIdentity::own()?.to_text().as_bytes())?;

        // It gets its name only now, so under that name it was always locked.
        let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
        linkat(CWD, unnamed, &folder, client, AtFlags::SYMLINK_FOLLOW)?;
        Ok(Self {
            folder,
            client: client.to_owned(),
            pid: getpid(),
            _file: file,
        })
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // A child that has forked from this process has a copy of this value.
        if self.pid == getpid() {
            // If the file stays, a client removes it later.
            let _ = unlinkat(&self.folder, &self.client, AtFlags::empty());
        }
    }
}

/// Whether the file of a client proves that its process has ended.
pub(super) fn has_ended(client: &str) -> io::Result<bool> {
    look(&open_folder(&folder_path())?, client)
}

fn folder_path() -> String {
    format!("/dev/shm/leasehold-{}", geteuid().as_raw())
}

/// Opens the folder, if it is of this user alone and does not outlive the machine.
fn open_folder(path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let folder = open(path, flags, Mode::empty())?;
    let is_memory = fstatfs(&folder)?.f_type == TMPFS_MAGIC;
    if is_memory && is_private(&fstat(&folder)?) {
        Ok(folder)
    } else {
        Err(ErrorKind::PermissionDenied.into())
    }
}

fn is_private(status: &Stat) -> bool {
    let others = Mode::RWXG | Mode::RWXO;
    status.st_uid == geteuid().as_raw() && !Mode::from_raw_mode(status.st_mode).intersects(others)
}

fn look(folder: &OwnedFd, client: &str) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(folder, client, flags, Mode::empty())?);
    let status = fstat(&file)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile || !is_private(&status) {
        return Ok(false);
    }
    // Several clients may look at once.
    flock(&file, FlockOperation::NonBlockingLockShared)?;

    let mut text = String::new();
    file.take(LEN_MAX).read_to_string(&mut text)?;
    let Some(found) = ProcessIdentity::parse(&text) else {
        return Ok(false);
    };
    found.has_ended(&ProcessIdentity::own()?)
}

/// Removes files of processes that ended long ago.
fn sweep(folder: &OwnedFd) -> io::Result<()> {
    let oldest = SystemTime::now() - KEPT;
    for entry in Dir::read_from(folder)?.flatten().take(SWEPT_MAX) {
        let Ok(client) = entry.file_name().to_str() else {
            continue;
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = openat(folder, client, flags, Mode::empty()) else {
            continue;
        };
        let is_old = File::from(file).metadata()?.modified()? < oldest;
        if is_old && look(folder, client).unwrap_or(false) {
            unlinkat(folder, client, AtFlags::empty())?;
        }
    }
    Ok(())
}

/// Which process has made a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ProcessIdentity {
    pid: i32,
    /// The namespace in which `pid` counts.
    pid_namespace: String,
    /// The namespace that shifts the times in `/proc`, as its reader sees them.
    time_namespace: String,
    /// Since the boot, in ticks.
    started: u64,
}

impl ProcessIdentity {
    fn own() -> io::Result<Self> {
        Ok(Self {
            pid: getpid().as_raw_pid(),
            pid_namespace: namespace("pid")?,
            time_namespace: namespace("time").unwrap_or_else(|_| "none".to_owned()),
            started: start_of("self")?,
        })
    }

    fn to_text(&self) -> String {
        let Self { pid, started, .. } = self;
        format!(
            "{pid} {} {} {started}\n",
            self.pid_namespace, self.time_namespace
        )
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.strip_suffix('\n')?.split(' ');
        Some(Self {
            pid: words.next()?.parse().ok()?,
            pid_namespace: words.next()?.to_owned(),
            time_namespace: words.next()?.to_owned(),
            started: words.next()?.parse().ok()?,
        })
    }

    /// Whether no process has this identity, as far as the process `own` can know.
    ///
    /// The process is opened before its start is read, and `/proc` is asked by the number that the
    /// descriptor names. So an id that is used again is no danger: the process that was opened is
    /// either the one of this identity, or has another start. It may also end while it is looked
    /// at. Then its file in `/proc` is missing, which is an error and proves nothing, or a third
    /// process has its number, with another start. In that case the process of this identity has
    /// ended too, because its number was free.
    fn has_ended(&self, own: &Self) -> io::Result<bool> {
        // The number of a namespace is used again when all of its processes have ended.
        if self.pid_namespace != own.pid_namespace {
            return Ok(false);
        }
        let pid = Pid::from_raw(self.pid).ok_or(ErrorKind::InvalidData)?;
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(Errno::SRCH) => return Ok(true),
            Err(error) => return Err(error.into()),
        };

        let mut watched = [PollFd::new(&process, PollFlags::IN)];
        // A zombie has ended too: nothing but its parent knows that it was there.
        if poll(&mut watched, Some(&Timespec::default()))? > 0 {
            return Ok(true);
        }
        let is_comparable = self.time_namespace == own.time_namespace;
        Ok(is_comparable && start_of(&number_of(&process)?)? != self.started)
    }
}

fn namespace(kind: &str) -> io::Result<String> {
    let link = readlink(format!("/proc/self/ns/{kind}"), Vec::new())?;
    link.into_string().map_err(Error::other)
}

/// Returns the number of a process in `/proc`, which may be that of another PID namespace.
fn number_of(process: &OwnedFd) -> io::Result<String> {
    let info = format!("/proc/self/fdinfo/{}", process.as_fd().as_raw_fd());
    let text = std::fs::read_to_string(info)?;
    let number = text.lines().find_map(|line| line.strip_prefix("Pid:"));
    Ok(number.ok_or(ErrorKind::InvalidData)?.trim().to_owned())
}

/// Returns when a process has started, by its number in `/proc`.
fn start_of(number: &str) -> io::Result<u64> {
    /// The fields between the name, which may have any characters, and the start.
    const BETWEEN: usize = 19;

    let status = std::fs::read(format!("/proc/{number}/stat"))?;
    let status = String::from_utf8_lossy(&status);
    let behind_name = status.rsplit(") ").next().unwrap_or_default();
    let start = behind_name.split(' ').nth(BETWEEN);
    let start = start.and_then(|start| start.parse().ok());
    start.ok_or_else(|| ErrorKind::InvalidData.into())
}
