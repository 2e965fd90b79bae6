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

use super::directory::Location;
use super::folder::Folder;
use super::touch::touch;
use super::trouble::trouble;
use crate::{Error, Result, Share};

/// How the file is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Turn {
    /// As `flock -x`: for a claim that leaves no room beside it.
    Alone,
    /// As `flock -s`: for readers and slots.
    Together,
}

impl Turn {
    pub(super) fn of(share: Share) -> Self {
        if share.is_whole() { Self::Alone } else { Self::Together }
    }

    fn waiting(self) -> FlockOperation {
        match self {
            Self::Alone => FlockOperation::LockExclusive,
            Self::Together => FlockOperation::LockShared,
        }
    }

    fn at_once(self) -> FlockOperation {
        match self {
            Self::Alone => FlockOperation::NonBlockingLockExclusive,
            Self::Together => FlockOperation::NonBlockingLockShared,
        }
    }
}

/// The file, locked; dropping it unlocks, also where another process has inherited the descriptor.
#[derive(Debug)]
pub(super) struct Key {
    file: File,
    turn: Turn,
}

impl Key {
    /// `None` if somebody who is not in our line has it.
    pub(super) fn take(folder: &Folder, at: &Location, turn: Turn) -> Result<Option<Self>> {
        loop {
            let (file, about) = open_gate(folder, at)?;
            match flock(&file, turn.at_once()) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(trouble(error, "lock", &at.path())),
            }
            if is_at(&about, at)? {
                return Ok(Some(Self { file, turn }));
            }
        }
    }

    /// Whether it locks the file that has this path now, and not one that was deleted meanwhile.
    pub(super) fn opens(&self, at: &Location) -> Result<bool> {
        let about = self.file.metadata().map_err(|error| trouble(error, "look at", &at.path()))?;
        is_at(&about, at)
    }

    /// A descriptor that keeps the file locked if this process ends.
    pub(super) fn anchor(&self, at: &Location) -> Result<OwnedFd> {
        let file = self.file.try_clone().map_err(|error| trouble(error, "keep open", &at.path()))?;
        Ok(file.into())
    }

    /// Keeps the file from looking abandoned.
    pub(super) fn touch(&self) {
        touch(&self.file);
    }

    pub(super) fn fits(&self, turn: Turn) -> bool {
        self.turn == turn
    }

    /// Lets others in beside it; the kernel does so without a gap.
    pub(super) fn share(&mut self, at: &Location) -> Result<()> {
        flock(&self.file, Turn::Together.at_once()).map_err(|error| trouble(error, "share", &at.path()))?;
        self.turn = Turn::Together;
        Ok(())
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // Unlocking fails on descriptors that are none; this is one.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// Whether an open file, of which this is known, is still the one at its place.
pub(super) fn is_at(about: &Metadata, at: &Location) -> Result<bool> {
    let there = at.stat()?;
    Ok(there.is_some_and(|there| (about.dev(), about.ino()) == (there.st_dev, there.st_ino)))
}

/// Opens the file for locking, making it if need be. It is never written, so one that another user made will do.
fn open_gate(folder: &Folder, at: &Location) -> Result<(File, Metadata)> {
    // Not blocking: a FIFO that somebody put in its place would otherwise wait for a writer.
    let opened = folder.open_or_make_file(at, OFlags::RDONLY | OFlags::NONBLOCK);
    let file = File::from(opened.map_err(|error| trouble(error, "open", &at.path()))?);
    let about = file.metadata().map_err(|error| trouble(error, "look at", &at.path()))?;
    if about.is_file() {
        return Ok((file, about));
    }
    Err(Error::damaged(format!("{} is not a regular file", at.path().display())).remedy("remove it"))
}

/// Those who wait until a foreign holder unlocks: a thread each, asleep in the kernel.
///
/// A sleeping thread cannot be called off. One whose wait was dropped is given to the next who wants the same; if none
/// does, it unlocks the moment it is woken.
#[derive(Debug, Default)]
pub(super) struct Porter {
    idle: Arc<Mutex<Idle>>,
}

/// The sleeping threads that nobody waits for, by what they will have locked.
type Idle = HashMap<(PathBuf, Turn), Vec<Arc<Watch>>>;

/// One sleeping thread. Its state, and whether it is idle, are changed under the porter's lock.
#[derive(Debug, Default)]
struct Watch {
    state: Mutex<State>,
    woken: Notify,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Asleep,
    Locked(Result<Key>),
    Taken,
}

impl Porter {
    /// Waits for the lock.
    ///
    /// *Cancel safety*: dropped, it does not get the lock.
    pub(super) async fn wait(&self, folder: &Folder, at: &Location, turn: Turn) -> Result<Key> {
        let what = (at.path(), turn);
        let watch = match self.adopt(&what) {
            Some(watch) => watch,
            None => self.send(folder, at, turn)?,
        };
        let waiting = Waiting { porter: self, what, watch };
        loop {
            if let Some(key) = waiting.watch.take() {
                return key;
            }
            waiting.watch.woken.notified().await;
        }
    }

    fn adopt(&self, what: &(PathBuf, Turn)) -> Option<Arc<Watch>> {
        self.idle.lock().get_mut(what).and_then(Vec::pop)
    }

    fn send(&self, folder: &Folder, at: &Location, turn: Turn) -> Result<Arc<Watch>> {
        let (file, _) = open_gate(folder, at)?;
        let watch = Arc::new(Watch::default());
        let (idle, sent, path) = (Arc::clone(&self.idle), Arc::clone(&watch), at.path());
        let sleep = move || {
            let key = sleep_until_locked(file, turn, &path);
            hand_over(&idle, &sent, &(path, turn), key);
        };
        let thread = std::thread::Builder::new().name("leasehold-flock".to_owned()).stack_size(64 * 1024).spawn(sleep);
        thread.map_err(|error| trouble(error, "start a thread to wait for", &at.path()))?;
        Ok(watch)
    }
}

impl Watch {
    fn take(&self) -> Option<Result<Key>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Locked(key) => Some(key),
            other => {
                *state = other;
                None
            }
        }
    }
}

fn sleep_until_locked(file: File, turn: Turn, path: &Path) -> Result<Key> {
    loop {
        match flock(&file, turn.waiting()) {
            Ok(()) => return Ok(Key { file, turn }),
            Err(Errno::INTR) => {}
            Err(error) => return Err(trouble(error, "lock", path)),
        }
    }
}

/// Gives the key to whoever waits; if nobody does any more, it is dropped.
fn hand_over(idle: &Mutex<Idle>, watch: &Arc<Watch>, what: &(PathBuf, Turn), key: Result<Key>) {
    let mut idle = idle.lock();
    let unwanted = idle.get_mut(what).is_some_and(|watches| {
        let before = watches.len();
        watches.retain(|other| !Arc::ptr_eq(other, watch));
        watches.len() < before
    });
    idle.retain(|_, watches| !watches.is_empty());
    if !unwanted {
        *watch.state.lock() = State::Locked(key);
        watch.woken.notify_one();
    }
}

/// Somebody waits for a watch; dropped, the watch goes idle, or its key back.
struct Waiting<'a> {
    porter: &'a Porter,
    what: (PathBuf, Turn),
    watch: Arc<Watch>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut idle = self.porter.idle.lock();
        let key = self.watch.take();
        if key.is_none() && matches!(*self.watch.state.lock(), State::Asleep) {
            idle.entry(self.what.clone()).or_default().push(Arc::clone(&self.watch));
        }
    }
}
