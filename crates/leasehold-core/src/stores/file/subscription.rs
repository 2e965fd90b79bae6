//! An observer's subscription: the kernel reports changes of the lock's files (inotify), and the
//! end of the processes in the queue.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::net::unix::pipe;

use super::folder::location::Location;
use super::process::Peer;
use super::protocol::Transaction;
use super::shared::Shared;
use super::transact::view;
use crate::local_fs::io_error;
use crate::store::Subscription;
use crate::{Error, Name, Result};

/// The watch of one queue.
#[derive(Debug)]
pub(super) struct QueueWatch {
    shared: Arc<Shared>,
    name: Name,
    files: WatchedFiles,
    /// The processes of the queue, to notice their end; `None` if they were not read since the last
    /// change.
    peers: Option<Vec<Peer>>,
}

impl QueueWatch {
    pub(super) async fn begin(shared: &Arc<Shared>, name: &Name) -> Result<Self> {
        let files = WatchedFiles::watch(shared, name)?;
        let peers = view(shared, name, Transaction::live_processes).await?;
        Ok(Self {
            shared: Arc::clone(shared),
            name: name.clone(),
            files,
            peers: Some(peers),
        })
    }
}

#[async_trait]
impl Subscription for QueueWatch {
    async fn changed(&mut self) -> Result<()> {
        if let Some(peers) = self.peers.take() {
            let mut deaths: FuturesUnordered<_> = peers.into_iter().map(Peer::died).collect();
            tokio::select! {
                changed = self.files.changed() => changed?,
                Some(died) = deaths.next() => died?,
            }
        }
        self.peers = Some(view(&self.shared, &self.name, Transaction::live_processes).await?);
        Ok(())
    }
}

/// The queue file and the lock file of one name, in the folder that has both.
#[derive(Debug)]
struct WatchedFiles {
    /// tokio has no other safe type for a descriptor that is read in whole messages.
    events: pipe::Receiver,
    queue: OsString,
    lock: OsString,
}

impl WatchedFiles {
    fn watch(shared: &Shared, name: &Name) -> Result<Self> {
        let folder = shared.folder();
        let queue = Location::queue(&folder, name);
        if queue.has_parents() {
            return Err(Error::unsupported(
                "the folder of a long name may be removed",
            ));
        }

        let events = events_of(folder.path())?;
        Ok(Self {
            events: pipe::Receiver::from_owned_fd_unchecked(events)
                .map_err(|error| io_error(error, "watch", folder.path()))?,
            queue: file_name(&queue.path()),
            lock: file_name(&Location::lock(&folder, name).path()),
        })
    }

    /// Waits for the next change of one of the files.
    ///
    /// # Cancel safety
    /// If the future is dropped, no event is lost.
    async fn changed(&self) -> Result<()> {
        let failed = |error| io_error(error, "watch", Path::new("the folder of the locks"));
        let mut buffer = [0; 4096];
        loop {
            self.events.readable().await.map_err(failed)?;
            match self.events.try_read(&mut buffer) {
                Ok(len) if self.has_change(&buffer[..len]) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }

    fn has_change(&self, mut events: &[u8]) -> bool {
        while let Some((event, rest)) = Event::split_first(events) {
            if self.concerns(&event) {
                return true;
            }
            events = rest;
        }
        false
    }

    /// Whether an event may be a change of the lock.
    ///
    /// flock(1) opens and closes the lock file. An inspection opens the queue file, and that is not
    /// a change.
    fn concerns(&self, event: &Event<'_>) -> bool {
        let opened_or_closed = ReadFlags::OPEN | ReadFlags::CLOSE_WRITE | ReadFlags::CLOSE_NOWRITE;
        let is_change = !event.flags.intersects(opened_or_closed);

        event.flags.contains(ReadFlags::QUEUE_OVERFLOW)
            || event.file == self.lock.as_bytes()
            || event.file == self.queue.as_bytes() && is_change
    }
}

/// An event as inotify(7) defines it: watch, flags, cookie, length of the name, name with zeros.
struct Event<'a> {
    flags: ReadFlags,
    file: &'a [u8],
}

impl<'a> Event<'a> {
    fn split_first(events: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (header, rest) = events.split_first_chunk::<16>()?;
        let number = |at: usize| {
            let bytes = header[at..at + 4].try_into();
            u32::from_ne_bytes(bytes.expect("a number has four bytes"))
        };

        let (padded, rest) = rest.split_at_checked(usize::try_from(number(12)).ok()?)?;
        let file = padded.split(|byte| *byte == 0).next().unwrap_or_default();
        let flags = ReadFlags::from_bits_retain(number(4));
        Some((Self { flags, file }, rest))
    }
}

fn events_of(folder: &Path) -> Result<OwnedFd> {
    let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
        .map_err(|error| cannot_watch(error, Errno::MFILE, "max_user_instances", folder))?;
    let opened_or_closed = WatchFlags::OPEN | WatchFlags::CLOSE;
    let changes = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE;
    inotify::add_watch(
        &events,
        folder,
        changes | opened_or_closed | WatchFlags::ONLYDIR,
    )
    .map_err(|error| cannot_watch(error, Errno::NOSPC, "max_user_watches", folder))?;
    Ok(events)
}

/// Returns the error of a watch. At the limit of the user, the observer polls.
fn cannot_watch(error: Errno, at_limit: Errno, limit: &str, folder: &Path) -> Error {
    if error == at_limit {
        let message = format!("this user has as many watches as fs.inotify.{limit} allows");
        return Error::unsupported(message).caused_by(io::Error::from(error));
    }
    io_error(error, "watch", folder)
}

fn file_name(path: &Path) -> OsString {
    path.file_name().unwrap_or_default().to_owned()
}
