//! Waiting for the flock(2) of a process outside the queue.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::flock;
use rustix::io::Errno;
use tokio::sync::Notify;

use super::super::folder::Folder;
use super::super::folder::location::Location;
use super::super::kept_files::OpenFile;
use super::{FlockGuard, FlockMode, open_lock_file};
use crate::Result;
use crate::local_fs::io_error;

/// The threads that wait until an external holder unlocks a file. Each thread sleeps in the kernel.
///
/// A sleeping thread cannot be cancelled. A thread whose wait was dropped serves the next wait for
/// the same file and mode. If there is none, the thread unlocks the file as soon as it wakes.
#[derive(Debug, Default)]
pub(crate) struct FlockWaiters {
    idle: Arc<Mutex<IdleThreads>>,
}

impl FlockWaiters {
    /// Waits for the lock.
    ///
    /// # Cancel safety
    /// If this is dropped, the lock is not taken.
    pub(crate) async fn wait(
        &self,
        folder: &Folder,
        at: &Location,
        mode: FlockMode,
    ) -> Result<FlockGuard> {
        let key = (at.path(), mode);
        let thread = match self.adopt(&key) {
            Some(thread) => thread,
            None => self.spawn(folder, at, mode)?,
        };
        let wait = FlockWait {
            waiters: self,
            key,
            thread,
        };

        loop {
            if let Some(flock) = wait.thread.take_guard() {
                return flock;
            }
            wait.thread.woken.notified().await;
        }
    }

    fn adopt(&self, key: &FlockKey) -> Option<Arc<FlockThread>> {
        self.idle.lock().get_mut(key).and_then(Vec::pop)
    }

    fn spawn(&self, folder: &Folder, at: &Location, mode: FlockMode) -> Result<Arc<FlockThread>> {
        let file = open_lock_file(folder, at)?;
        let waiter = Arc::new(FlockThread::default());

        let idle = Arc::clone(&self.idle);
        let thread = Arc::clone(&waiter);
        let path = at.path();
        let sleep = move || {
            let flock = sleep_until_locked(file, mode, &path);
            hand_over(&idle, &thread, &(path, mode), flock);
        };
        std::thread::Builder::new()
            .name("leasehold-flock".to_owned())
            .stack_size(STACK_SIZE)
            .spawn(sleep)
            .map_err(|error| io_error(error, "start a thread to wait for", &at.path()))?;
        Ok(waiter)
    }
}

/// The file and the mode that a thread waits for.
type FlockKey = (PathBuf, FlockMode);

/// The idle threads: sleeping threads whose wait was dropped.
type IdleThreads = HashMap<FlockKey, Vec<Arc<FlockThread>>>;

/// One sleeping thread. The mutex of the idle threads protects its state and whether it is idle.
#[derive(Debug, Default)]
struct FlockThread {
    state: Mutex<ThreadState>,
    woken: Notify,
}

/// ```text
/// Asleep ──the kernel locks the file──► Locked ──the wait takes the guard──► Taken
/// ```
#[derive(Debug, Default)]
enum ThreadState {
    #[default]
    Asleep,
    Locked(Result<FlockGuard>),
    Taken,
}

impl FlockThread {
    fn take_guard(&self) -> Option<Result<FlockGuard>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, ThreadState::Taken) {
            ThreadState::Locked(flock) => Some(flock),
            other => {
                *state = other;
                None
            }
        }
    }
}

fn sleep_until_locked(file: OpenFile, mode: FlockMode, path: &Path) -> Result<FlockGuard> {
    loop {
        match flock(file.file(), mode.blocking()) {
            Ok(()) => return Ok(FlockGuard::of_locked(file, mode)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(io_error(error, "lock", path)),
        }
    }
}

/// Gives the guard to the wait of this thread. If the thread is idle, the guard is dropped.
fn hand_over(
    idle: &Mutex<IdleThreads>,
    thread: &Arc<FlockThread>,
    key: &FlockKey,
    flock: Result<FlockGuard>,
) {
    let mut idle = idle.lock();
    let was_idle = idle.get_mut(key).is_some_and(|threads| {
        let before = threads.len();
        threads.retain(|other| !Arc::ptr_eq(other, thread));
        threads.len() < before
    });
    idle.retain(|_, threads| !threads.is_empty());

    if !was_idle {
        *thread.state.lock() = ThreadState::Locked(flock);
        thread.woken.notify_one();
    }
}

/// A wait for a thread. If it is dropped, the thread goes idle, or its guard is dropped.
struct FlockWait<'a> {
    waiters: &'a FlockWaiters,
    key: FlockKey,
    thread: Arc<FlockThread>,
}

impl Drop for FlockWait<'_> {
    fn drop(&mut self) {
        let mut idle = self.waiters.idle.lock();
        let flock = self.thread.take_guard();
        let is_asleep = matches!(*self.thread.state.lock(), ThreadState::Asleep);
        if flock.is_none() && is_asleep {
            let threads = idle.entry(self.key.clone()).or_default();
            threads.push(Arc::clone(&self.thread));
        }
    }
}

/// The stack of a thread that only sleeps.
const STACK_SIZE: usize = 64 * 1024;
