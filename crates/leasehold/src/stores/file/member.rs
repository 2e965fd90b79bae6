//! The processes that use a store, known by one FIFO each.
//!
//! A member keeps its FIFO open for reading. Whoever opens it for writing is told by the kernel whether anybody reads
//! (`ENXIO` if not), and hears at once when nobody does any more (`EPOLLERR`): that is how death is known, across
//! containers too, and without a time-out. The same FIFO is the member's inbox: 16 bytes ring the claim of that id.

use std::fmt;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use rustix::io::Errno;
use rustix::pipe::fcntl_getpipe_size;
use tokio::io::Interest;
use tokio::net::unix::pipe;

use super::trouble::trouble;
use crate::{ClaimId, Result};

/// A FIFO that is being made is called so, and may not have its reader yet.
const UNBORN: &str = "new-";
/// How long making one may take before it counts as left over.
const UNBORN_MAX: Duration = Duration::from_secs(60);
/// How many claims are rung in one go: half a page, which a FIFO takes whole or refuses, and packs at least half full.
const MESSAGE_IDS: usize = 128;

/// The identity of one opening of a store by one process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct MemberId([u8; 16]);

impl MemberId {
    pub(super) fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub(super) fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// This process as a member. Others see it alive until this and the inbox that came with it are dropped, or the process
/// and all that inherited its [anchor](Member::anchor) have ended.
#[derive(Debug)]
pub(super) struct Member {
    id: MemberId,
    path: PathBuf,
    presence: OwnedFd,
}

impl Member {
    /// Joins, and clears away the FIFOs of the dead. Must be called inside the runtime that will read the inbox.
    pub(super) fn join(members: &Path) -> Result<(Self, Inbox)> {
        sweep(members);
        let id = MemberId(ClaimId::draw().to_bytes());
        let path = members.join(id.to_string());
        let unborn = members.join(format!("{UNBORN}{id}"));
        let fifo = |error: Errno| trouble(error, "make the FIFO", &unborn);
        mknodat(CWD, &unborn, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).map_err(fifo)?;
        // Open for writing too, so that it never reads as ended when a ringer closes it.
        let inbox = pipe::OpenOptions::new().read_write(true).open_receiver(&unborn);
        let inbox = inbox.map_err(|error| trouble(error, "open the FIFO", &unborn))?;
        // Under its own name it has a reader from the first moment on.
        fs::rename(&unborn, &path).map_err(|error| trouble(error, "name the FIFO", &path))?;
        let size = fcntl_getpipe_size(&inbox).map_err(|error| trouble(error, "measure the FIFO", &path))?;
        let presence = inbox.as_fd().try_clone_to_owned().map_err(|error| trouble(error, "keep open", &path))?;
        Ok((Self { id, path, presence }, Inbox { fifo: inbox, size }))
    }

    pub(super) fn id(&self) -> MemberId {
        self.id
    }

    /// A descriptor with which another process can live on as this member.
    pub(super) fn anchor(&self) -> Result<OwnedFd> {
        self.presence.try_clone().map_err(|error| trouble(error, "keep open", &self.path))
    }

    /// Whether others can still see it; an outside hand may have deleted the FIFO.
    pub(super) fn is_listed(&self) -> bool {
        self.path.exists()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // If it stays, the next to join sweeps it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Where others ring.
#[derive(Debug)]
pub(super) struct Inbox {
    fifo: pipe::Receiver,
    size: usize,
}

/// What was rung.
pub(super) enum Rung {
    These(Vec<ClaimId>),
    /// The inbox was full, so a ring may have been lost.
    Perhaps,
}

impl Inbox {
    pub(super) async fn rung(&self) -> Rung {
        let mut buffer = vec![0; self.size];
        loop {
            // A FIFO that is open for writing here too neither ends nor fails; if it did, everybody looks again.
            if self.fifo.readable().await.is_err() {
                return Rung::Perhaps;
            }
            match self.fifo.try_read(&mut buffer) {
                // A ring is refused only when the FIFO is full, and a full one is at least half full of bytes.
                Ok(len) if len < self.size / 3 => {
                    let ids = buffer[..len].chunks_exact(16).map(|id| id.try_into().expect("sixteen bytes"));
                    return Rung::These(ids.map(ClaimId::from_bytes).collect());
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => return Rung::Perhaps,
            }
        }
    }
}

/// Another member, alive when it was opened.
#[derive(Debug)]
pub(super) struct Peer(OwnedFd);

impl Peer {
    /// `None` if it is dead.
    pub(super) fn open(members: &Path, id: MemberId) -> Result<Option<Self>> {
        let path = members.join(id.to_string());
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match open(&path, flags, Mode::empty()) {
            Ok(fifo) => Ok(Some(Self(fifo))),
            Err(Errno::NXIO | Errno::NOENT) => Ok(None),
            Err(error) => Err(trouble(error, "reach the process behind", &path)),
        }
    }

    /// Rings claims. A ring may be lost if the inbox is full: whoever finds it so looks at everything.
    pub(super) fn ring(&self, ids: &[ClaimId]) {
        for ids in ids.chunks(MESSAGE_IDS) {
            let message: Vec<u8> = ids.iter().flat_map(|id| id.to_bytes()).collect();
            // Dead, or full: in neither case is there anybody else to tell.
            let _ = rustix::io::write(&self.0, &message);
        }
    }

    /// Resolves when it dies. Must be called inside a runtime.
    pub(super) async fn died(self) -> Result<()> {
        let watch = pipe::Sender::from_owned_fd_unchecked(self.0);
        let watch = watch.map_err(|error| trouble(error, "watch", Path::new("the process ahead")))?;
        let died = watch.ready(Interest::ERROR).await;
        died.map(drop).map_err(|error| trouble(error, "watch", Path::new("the process ahead")))
    }
}

/// Removes what the dead left. A FIFO that cannot be removed does no harm and is tried again by the next to join.
fn sweep(members: &Path) {
    let Ok(entries) = fs::read_dir(members) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_fifo()) && is_left_over(&entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn is_left_over(fifo: &Path) -> bool {
    let unborn = fifo.file_name().is_some_and(|name| name.to_string_lossy().starts_with(UNBORN));
    if unborn && !is_older(fifo, UNBORN_MAX) {
        return false;
    }
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    open(fifo, flags, Mode::empty()).err() == Some(Errno::NXIO)
}

fn is_older(path: &Path, age: Duration) -> bool {
    let modified = fs::metadata(path).and_then(|about| about.modified());
    modified.is_ok_and(|modified| SystemTime::now().duration_since(modified).is_ok_and(|passed| passed > age))
}
