//! The processes that use a store, known by one FIFO each.
//!
//! A member keeps its FIFO open for reading. Whoever opens it for writing is told by the kernel whether anybody reads
//! (`ENXIO` if not), and hears at once when nobody does any more (`EPOLLERR`): that is how death is known, across
//! containers too, and without a time-out. The same FIFO is the member's inbox: 16 bytes ring the claim of that id.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, FileType, OFlags, mknodat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::pipe::fcntl_getpipe_size;
use tokio::io::Interest;
use tokio::net::unix::pipe;

use super::folder::directory::{Directory, Location, complete_mode};
use super::folder::{FILE_MODE, PENDING};
use super::touch::touch;
use crate::local_fs::io_error;
use crate::{ClaimId, Result};

/// How long making a file may take before it counts as left over.
const PENDING_MAX: Duration = Duration::from_secs(60);
/// How many claims are rung in one go: half a page, which a FIFO takes whole or refuses, and packs at least half full.
const MESSAGE_IDS: usize = 128;

/// The identity of one opening of a store by one process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ProcessId([u8; 16]);

impl ProcessId {
    pub(super) fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub(super) fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// This process as a member. Others see it alive until this and the inbox that came with it are dropped, or the process
/// and all that inherited its [anchor](Process::inheritable_fd) have ended.
#[derive(Debug)]
pub(super) struct Process {
    id: ProcessId,
    at: Location,
    path: PathBuf,
    fifo: OwnedFd,
}

impl Process {
    /// Joins, and clears away the FIFOs of the dead. Must be called inside the runtime that will read the inbox.
    pub(super) fn join(members: &Arc<Directory>) -> Result<(Self, Inbox)> {
        remove_stale(members);
        let id = ProcessId(ClaimId::draw().to_bytes());
        let at = members.file(id.to_string());
        let pending = members.file(format!("{PENDING}{id}"));
        make_fifo(&pending).map_err(|error| io_error(error, "make the FIFO", &pending.path()))?;

        // Open for writing too, so that it never reads as ended when a ringer closes it.
        let inbox = pending
            .open(OFlags::RDWR | OFlags::NONBLOCK)
            .map_err(std::io::Error::from);
        let inbox = inbox.and_then(pipe::Receiver::from_owned_fd);
        let inbox = inbox.map_err(|error| io_error(error, "open the FIFO", &pending.path()))?;

        // Under its own name it has a reader from the first moment on.
        renameat(members, pending.relative(), members, at.relative())
            .map_err(|error| io_error(error, "name the FIFO", &at.path()))?;
        let size = fcntl_getpipe_size(&inbox)
            .map_err(|error| io_error(error, "measure the FIFO", &at.path()))?;
        let fifo = inbox
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| io_error(error, "keep open", &at.path()))?;
        Ok((
            Self {
                id,
                path: at.path(),
                at,
                fifo,
            },
            Inbox { fifo: inbox, size },
        ))
    }

    pub(super) fn id(&self) -> ProcessId {
        self.id
    }

    /// A descriptor with which another process can live on as this member.
    pub(super) fn inheritable_fd(&self) -> Result<OwnedFd> {
        self.fifo
            .try_clone()
            .map_err(|error| io_error(error, "keep open", &self.path))
    }

    /// Whether others can still see it: the FIFO may have been deleted, or the folder replaced, so this goes by the path.
    pub(super) fn is_listed(&self) -> bool {
        self.path.exists()
    }

    /// Keeps its FIFO from looking abandoned.
    pub(super) fn touch(&self) {
        touch(&self.fifo);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // If it stays, the next to join sweeps it.
        let _ = unlinkat(self.at.directory(), self.at.relative(), AtFlags::empty());
    }
}

/// Where others ring.
#[derive(Debug)]
pub(super) struct Inbox {
    fifo: pipe::Receiver,
    size: usize,
}

/// What was rung.
pub(super) enum Wakeups {
    Claims(Vec<ClaimId>),
    /// The inbox was full, so a ring may have been lost.
    Overflow,
}

impl Inbox {
    pub(super) async fn read_wakeups(&self) -> Wakeups {
        let mut buffer = vec![0; self.size];
        loop {
            // A FIFO that is open for writing here too neither ends nor fails; if it did, everybody looks again.
            if self.fifo.readable().await.is_err() {
                return Wakeups::Overflow;
            }
            match self.fifo.try_read(&mut buffer) {
                // A ring is refused only when the FIFO is full, and a full one is at least half full of bytes.
                Ok(len) if len < self.size / 3 => {
                    let ids = buffer[..len]
                        .chunks_exact(16)
                        .map(|id| id.try_into().expect("sixteen bytes"));
                    return Wakeups::Claims(ids.map(ClaimId::from_bytes).collect());
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => return Wakeups::Overflow,
            }
        }
    }
}

/// Another member, alive when it was opened.
#[derive(Debug)]
pub(super) struct Peer(OwnedFd);

impl Peer {
    /// `None` if it is dead.
    pub(super) fn open(members: &Arc<Directory>, id: ProcessId) -> Result<Option<Self>> {
        let at = members.file(id.to_string());
        match at.open(OFlags::WRONLY | OFlags::NONBLOCK) {
            Ok(fifo) => Ok(Some(Self(fifo))),
            Err(Errno::NXIO | Errno::NOENT) => Ok(None),
            Err(error) => Err(io_error(error, "reach the process behind", &at.path())),
        }
    }

    /// Rings claims. A ring may be lost if the inbox is full: whoever finds it so looks at everything.
    pub(super) fn wake(&self, ids: &[ClaimId]) {
        for ids in ids.chunks(MESSAGE_IDS) {
            let message: Vec<u8> = ids.iter().flat_map(|id| id.to_bytes()).collect();
            // Dead, or full: in neither case is there anybody else to tell.
            let _ = rustix::io::write(&self.0, &message);
        }
    }

    /// Resolves when it dies. Must be called inside a runtime.
    pub(super) async fn died(self) -> Result<()> {
        let thread = pipe::Sender::from_owned_fd_unchecked(self.0);
        let thread =
            thread.map_err(|error| io_error(error, "watch", Path::new("the process ahead")))?;
        let died = thread.ready(Interest::ERROR).await;
        died.map(drop)
            .map_err(|error| io_error(error, "watch", Path::new("the process ahead")))
    }
}

fn make_fifo(at: &Location) -> rustix::io::Result<()> {
    mknodat(at.directory(), at.relative(), FileType::Fifo, FILE_MODE, 0)?;
    complete_mode(&at.open(OFlags::PATH)?, FILE_MODE)
}

/// Removes what the dead left. A file that cannot be removed does no harm and is tried again by the next to join.
fn remove_stale(members: &Arc<Directory>) {
    let Ok(entries) = Dir::read_from(members) else {
        return;
    };
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        let at = members.file(name);
        if is_stale(&at) {
            let _ = unlinkat(members, name, AtFlags::empty());
        }
    }
}

/// A FIFO without a reader, or a file that was being made a long time ago.
fn is_stale(at: &Location) -> bool {
    let Ok(Some(what)) = at.stat() else {
        return false;
    };
    let is_pending = at.relative().to_string_lossy().starts_with(PENDING);
    let is_old = UNIX_EPOCH
        .checked_add(Duration::from_secs(what.st_mtime.try_into().unwrap_or(0)))
        .and_then(|modified| SystemTime::now().duration_since(modified).ok())
        .is_some_and(|passed| passed > PENDING_MAX);
    match FileType::from_raw_mode(what.st_mode) {
        _ if is_pending && !is_old => false,
        FileType::Fifo => at.open(OFlags::WRONLY | OFlags::NONBLOCK).err() == Some(Errno::NXIO),
        FileType::RegularFile => is_pending,
        _ => false,
    }
}
