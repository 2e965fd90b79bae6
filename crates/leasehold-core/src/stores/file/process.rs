//! The processes that use a store. Each process is identified by one FIFO.
//!
//! A process keeps its FIFO open for reading. If another process opens the FIFO for writing, the
//! kernel reports whether the FIFO has a reader (`ENXIO` if not). When the last reader ends, the
//! kernel reports `EPOLLERR`. So a crash is detected at once, across containers too, and without a
//! timeout.
//!
//! The FIFO is also the inbox of the process: a message consists of the 16-byte ids of the claims
//! to wake.

mod members;

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, OFlags, fstat, lstat, mknodat, renameat};
use rustix::io::Errno;
use rustix::pipe::fcntl_getpipe_size;
use tokio::io::Interest;
use tokio::net::unix::pipe;

use super::folder::Folder;
use super::folder::location::{FILE_MODE, Location};
use super::folder::names::PENDING;
use super::folder::object::{ObjectKind, OpenError, touch};
use crate::local_fs::io_error;
use crate::store::{claim_id_from_bytes, draw_claim_id};
use crate::{ClaimId, Result};

pub(super) use members::{FileId, Members, file_id, flags, remove_stale};

/// The identity of one opening of a store by one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// This process in the store.
///
/// It counts as alive until this value and its inbox are dropped. If the process ends without
/// dropping them, it counts as alive until every process that inherited its
/// [descriptor](Process::inheritable_fd) has ended too.
#[derive(Debug)]
pub(super) struct Process {
    id: ProcessId,
    at: Location,
    path: PathBuf,
    fifo: OwnedFd,
    file_id: FileId,
}

impl Process {
    /// Joins the store and removes the FIFOs of dead processes. Must be called inside the runtime
    /// that will read the inbox.
    pub(super) fn join(folder: &Arc<Folder>) -> Result<(Self, Inbox)> {
        remove_stale(folder);
        let id = ProcessId(draw_claim_id().to_bytes());
        let at = Location::member(folder, &id.to_string());
        let pending_name = format!("{PENDING}{id}");
        let pending = Location::member(folder, &pending_name);
        make_fifo(&pending, &pending_name)?;

        // The FIFO is open for writing too. Otherwise a read would return end-of-file when the last
        // sender closes it.
        let opened = pending
            .open(FileType::Fifo, OFlags::RDWR)
            .map_err(|error| pending.open_error(error, "open the FIFO"))?;
        let inbox = pipe::Receiver::from_owned_fd(opened)
            .map_err(|error| pending.io_error(error, "open the FIFO"))?;

        // The FIFO gets its final name only now, so under that name it always has a reader.
        let members = folder.members();
        renameat(members, &pending_name, members, id.to_string())
            .map_err(|error| at.io_error(error, "name the FIFO"))?;

        let size =
            fcntl_getpipe_size(&inbox).map_err(|error| at.io_error(error, "measure the FIFO"))?;
        let fifo = inbox
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| at.io_error(error, "keep open"))?;
        let status = fstat(&fifo).map_err(|error| at.io_error(error, "inspect"))?;
        let process = Self {
            id,
            path: at.path(),
            at,
            fifo,
            file_id: file_id(&status),
        };
        Ok((process, Inbox { fifo: inbox, size }))
    }

    pub(super) fn id(&self) -> ProcessId {
        self.id
    }

    /// A descriptor that keeps this process alive for the others while another process has it open.
    pub(super) fn inheritable_fd(&self) -> Result<OwnedFd> {
        self.fifo
            .try_clone()
            .map_err(|error| self.at.io_error(error, "keep open"))
    }

    /// Whether others can still see this process. The FIFO may have been deleted or replaced, and so
    /// may the folder, so the check goes by the path.
    pub(super) fn is_listed(&self) -> bool {
        lstat(&self.path).is_ok_and(|listed| file_id(&listed) == self.file_id)
    }

    /// Keeps the times of the FIFO recent, so that cleaners do not delete it.
    pub(super) fn touch(&self) {
        touch(&self.fifo);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Another user may have put something else in the place of the FIFO.
        if let Ok(Some(found)) = self.at.stat()
            && file_id(&found) == self.file_id
        {
            // If the FIFO stays, the next process that joins removes it.
            let _ = self.at.remove();
        }
    }
}

/// Receives the wake-ups that other processes send.
#[derive(Debug)]
pub(super) struct Inbox {
    fifo: pipe::Receiver,
    size: usize,
}

/// The wake-ups of one read.
pub(super) enum Wakeups {
    Claims(Vec<ClaimId>),
    /// The inbox was full, so a wake-up may have been lost.
    Overflow,
}

impl Inbox {
    /// Reads the next wake-ups.
    ///
    /// # Cancel safety
    /// If this is dropped, no wake-up is lost.
    pub(super) async fn read_wakeups(&self) -> Wakeups {
        let mut buffer = vec![0; self.size];
        loop {
            // The FIFO is open for writing here too, so it neither ends nor fails. If it did, every
            // claim would poll again.
            if self.fifo.readable().await.is_err() {
                return Wakeups::Overflow;
            }
            match self.fifo.try_read(&mut buffer) {
                // A message is refused only when the FIFO is full. Then at least half of its size
                // is in use.
                Ok(len) if len < self.size / 3 => {
                    return Wakeups::Claims(parse_ids(&buffer[..len]));
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => return Wakeups::Overflow,
            }
        }
    }
}

/// Another process of the store, alive when it was opened.
#[derive(Debug)]
pub(super) struct Peer(OwnedFd);

impl Peer {
    /// Opens the FIFO of a process; `None` if the process is dead.
    pub(super) fn open(folder: &Arc<Folder>, id: ProcessId) -> Result<Option<Self>> {
        let at = Location::member(folder, &id.to_string());
        match at.open(FileType::Fifo, OFlags::WRONLY) {
            Ok(fifo) => Ok(Some(Self(fifo))),
            // If another file has the name, no process of the store made it.
            Err(OpenError::Kernel(Errno::NXIO | Errno::NOENT) | OpenError::Type(_)) => Ok(None),
            Err(error) => Err(at.open_error(error, "reach the process of")),
        }
    }

    /// Wakes claims of the process. A wake-up is lost if the inbox is full. The reader of a full
    /// inbox wakes all its claims.
    pub(super) fn wake(&self, ids: &[ClaimId]) {
        for ids in ids.chunks(MESSAGE_IDS) {
            let message: Vec<u8> = ids.iter().flat_map(|id| id.to_bytes()).collect();
            // The process is dead, or its inbox is full. In both cases nothing is left to send.
            let _ = rustix::io::write(&self.0, &message);
        }
    }

    /// Resolves when the process ends. Must be called inside a runtime.
    ///
    /// # Cancel safety
    /// Dropping this ends the watch and changes nothing else.
    pub(super) async fn died(self) -> Result<()> {
        let failed = |error| io_error(error, "watch", Path::new("the process ahead"));
        let watch = pipe::Sender::from_owned_fd_unchecked(self.0).map_err(failed)?;
        watch.ready(Interest::ERROR).await.map_err(failed)?;
        Ok(())
    }
}

pub(super) fn parse_ids(bytes: &[u8]) -> Vec<ClaimId> {
    bytes
        .chunks_exact(ID_LEN)
        .map(|id| claim_id_from_bytes(id.try_into().expect("an id has 16 bytes")))
        .collect()
}

fn make_fifo(at: &Location, name: &str) -> Result<()> {
    let sharing = at.folder().sharing()?;
    let failed = |error| at.io_error(error, "make the FIFO");
    mknodat(at.folder().members(), name, FileType::Fifo, FILE_MODE, 0).map_err(failed)?;

    let fifo = at.look().map_err(failed)?;
    sharing.apply(&fifo, ObjectKind::Fifo, &at.path())
}

/// The length of a claim id in a message.
const ID_LEN: usize = 16;

/// The number of ids in one message: half a page. A FIFO takes such a message whole or refuses it,
/// and packs its pages at least half full.
const MESSAGE_IDS: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_inputs::altered;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_wakeups_are_parsed(bytes in altered(&["0123456789abcdef0123456789abcdef"])) {
            let ids = parse_ids(&bytes);
            prop_assert!(ids.len() <= bytes.len() / 16);
        }
    }
}
