//! `NAME.lock` itself: the flock(2) that keeps out, and is kept out by, flock(1) and older tools.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use tokio::sync::Notify;

use super::folder::Folder;
use super::folder::directory::Location;
use super::touch::touch;
use crate::local_fs::io_error;
use crate::{Error, Result, Share};

/// How the file is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum FlockMode {
    /// As `flock -x`: for a claim that leaves no room beside it.
    Exclusive,
    /// As `flock -s`: for readers and slots.
    Shared,
}

impl FlockMode {
    pub(super) fn of(share: Share) -> Self {
        if share.is_whole() {
            Self::Exclusive
        } else {
            Self::Shared
        }
    }

    fn blocking(self) -> FlockOperation {
        match self {
            Self::Exclusive => FlockOperation::LockExclusive,
            Self::Shared => FlockOperation::LockShared,
        }
    }

    fn nonblocking(self) -> FlockOperation {
        match self {
            Self::Exclusive => FlockOperation::NonBlockingLockExclusive,
            Self::Shared => FlockOperation::NonBlockingLockShared,
        }
    }
}

/// The file, locked; dropping it unlocks, also where another process has inherited the descriptor.
#[derive(Debug)]
pub(super) struct FlockGuard {
    file: File,
    mode: FlockMode,
}

impl FlockGuard {
    /// `None` if somebody who is not in our line has it.
    pub(super) fn acquire(folder: &Folder, at: &Location, mode: FlockMode) -> Result<Option<Self>> {
        loop {
            let (file, what) = open_lock_file(folder, at)?;
            match flock(&file, mode.nonblocking()) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(io_error(error, "lock", &at.path())),
            }
            if is_at(&what, at)? {
                return Ok(Some(Self { file, mode }));
            }
        }
    }

    /// Whether it locks the file that has this path now, and not one that was deleted meanwhile.
    pub(super) fn serves(&self, at: &Location) -> Result<bool> {
        let what = self
            .file
            .metadata()
            .map_err(|error| io_error(error, "look at", &at.path()))?;
        is_at(&what, at)
    }

    /// A descriptor that keeps the file locked if this process ends.
    pub(super) fn inheritable_fd(&self, at: &Location) -> Result<OwnedFd> {
        let file = self
            .file
            .try_clone()
            .map_err(|error| io_error(error, "keep open", &at.path()))?;
        Ok(file.into())
    }

    /// Keeps the file from looking abandoned.
    pub(super) fn touch(&self) {
        touch(&self.file);
    }

    pub(super) fn satisfies(&self, mode: FlockMode) -> bool {
        self.mode == mode
    }

    /// Lets others in beside it; the kernel does so without a gap.
    pub(super) fn downgrade(&mut self, at: &Location) -> Result<()> {
        flock(&self.file, FlockMode::Shared.nonblocking())
            .map_err(|error| io_error(error, "share", &at.path()))?;
        self.mode = FlockMode::Shared;
        Ok(())
    }
}

impl Drop for FlockGuard {
    fn drop(&mut self) {
        // Unlocking fails on descriptors that are none; this is one.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// Whether an open file, of which this is known, is still the one at its place.
pub(super) fn is_at(what: &Metadata, at: &Location) -> Result<bool> {
    let there = at.stat()?;
    Ok(there.is_some_and(|there| (what.dev(), what.ino()) == (there.st_dev, there.st_ino)))
}

/// Opens the file for locking, making it if need be. It is never written, so one that another user made will do.
fn open_lock_file(folder: &Folder, at: &Location) -> Result<(File, Metadata)> {
    // Not blocking: a FIFO that somebody put in its place would otherwise wait for a writer.
    let opened = folder.open_or_make_file(at, OFlags::RDONLY | OFlags::NONBLOCK);
    let file = File::from(opened.map_err(|error| io_error(error, "open", &at.path()))?);
    let what = file
        .metadata()
        .map_err(|error| io_error(error, "look at", &at.path()))?;
    if what.is_file() {
        return Ok((file, what));
    }
    Err(Error::damaged(format!("{} is not a regular file", at.path().display())).help("remove it"))
}

/// Those who wait until a foreign holder unlocks: a thread each, asleep in the kernel.
///
/// A sleeping thread cannot be called off. One whose wait was dropped is given to the next who wants the same; if none
/// does, it unlocks the moment it is woken.
#[derive(Debug, Default)]
pub(super) struct FlockWaiters {
    idle: Arc<Mutex<IdleThreads>>,
}

/// The sleeping threads that nobody waits for, by what they will have locked.
type IdleThreads = HashMap<(PathBuf, FlockMode), Vec<Arc<FlockThread>>>;

/// One sleeping thread. Its state, and whether it is idle, are changed under the porter's lock.
#[derive(Debug, Default)]
struct FlockThread {
    state: Mutex<State>,
    woken: Notify,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Asleep,
    LockedQueueFile(Result<FlockGuard>),
    Taken,
}

impl FlockWaiters {
    /// Waits for the lock.
    ///
    /// *Cancel safety*: dropped, it does not get the lock.
    pub(super) async fn wait(
        &self,
        folder: &Folder,
        at: &Location,
        mode: FlockMode,
    ) -> Result<FlockGuard> {
        let what = (at.path(), mode);
        let waiter = match self.adopt(&what) {
            Some(waiter) => waiter,
            None => self.send(folder, at, mode)?,
        };
        let waiting = FlockWait {
            waiters: self,
            what,
            thread: waiter,
        };
        loop {
            if let Some(flock) = waiting.thread.take_guard() {
                return flock;
            }
            waiting.thread.woken.notified().await;
        }
    }

    fn adopt(&self, what: &(PathBuf, FlockMode)) -> Option<Arc<FlockThread>> {
        self.idle.lock().get_mut(what).and_then(Vec::pop)
    }

    fn send(&self, folder: &Folder, at: &Location, mode: FlockMode) -> Result<Arc<FlockThread>> {
        let (file, _) = open_lock_file(folder, at)?;
        let waiter = Arc::new(FlockThread::default());
        let (idle, sent, path) = (Arc::clone(&self.idle), Arc::clone(&waiter), at.path());
        let sleep = move || {
            let flock = sleep_until_locked(file, mode, &path);
            hand_over(&idle, &sent, &(path, mode), flock);
        };
        let thread = std::thread::Builder::new()
            .name("leasehold-flock".to_owned())
            .stack_size(64 * 1024)
            .spawn(sleep);
        thread.map_err(|error| io_error(error, "start a thread to wait for", &at.path()))?;
        Ok(waiter)
    }
}

impl FlockThread {
    fn take_guard(&self) -> Option<Result<FlockGuard>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::LockedQueueFile(flock) => Some(flock),
            other => {
                *state = other;
                None
            }
        }
    }
}

fn sleep_until_locked(file: File, mode: FlockMode, path: &Path) -> Result<FlockGuard> {
    loop {
        match flock(&file, mode.blocking()) {
            Ok(()) => return Ok(FlockGuard { file, mode }),
            Err(Errno::INTR) => {}
            Err(error) => return Err(io_error(error, "lock", path)),
        }
    }
}

/// Gives the key to whoever waits; if nobody does any more, it is dropped.
fn hand_over(
    idle: &Mutex<IdleThreads>,
    waiter: &Arc<FlockThread>,
    what: &(PathBuf, FlockMode),
    flock: Result<FlockGuard>,
) {
    let mut idle = idle.lock();
    let unwanted = idle.get_mut(what).is_some_and(|waiters| {
        let before = waiters.len();
        waiters.retain(|other| !Arc::ptr_eq(other, waiter));
        waiters.len() < before
    });
    idle.retain(|_, waiters| !waiters.is_empty());
    if !unwanted {
        *waiter.state.lock() = State::LockedQueueFile(flock);
        waiter.woken.notify_one();
    }
}

/// Somebody waits for a watch; dropped, the watch goes idle, or its key back.
struct FlockWait<'a> {
    waiters: &'a FlockWaiters,
    what: (PathBuf, FlockMode),
    thread: Arc<FlockThread>,
}

impl Drop for FlockWait<'_> {
    fn drop(&mut self) {
        let mut idle = self.waiters.idle.lock();
        let flock = self.thread.take_guard();
        if flock.is_none() && matches!(*self.thread.state.lock(), State::Asleep) {
            idle.entry(self.what.clone())
                .or_default()
                .push(Arc::clone(&self.thread));
        }
    }
}
