//! Waiting for the flock(2) of a process outside the queue.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::flock::{FlockGuard, FlockMode};
use super::folder::location::Location;
use super::lock_file;
use crate::Result;

/// The threads that wait until an external holder unlocks a file. Each thread sleeps in the kernel.
///
/// A sleeping thread cannot be cancelled. A thread whose wait was dropped is idle, and serves the
/// next wait for the same file and mode. If there is none, the thread unlocks the file as soon as
/// it wakes.
#[derive(Debug, Default)]
pub(super) struct FlockWaiters {
    idle: Arc<Mutex<IdleThreads>>,
}

/// What idle threads will send. A thread sends while it has this map locked.
type IdleThreads = HashMap<FlockKey, Vec<FlockOutcome>>;

/// The file and the mode that a thread waits for.
type FlockKey = (PathBuf, FlockMode);

type FlockOutcome = oneshot::Receiver<Result<FlockGuard>>;

impl FlockWaiters {
    /// Waits for the lock.
    ///
    /// # Cancel safety
    /// If this is dropped, the lock is not taken.
    pub(super) async fn wait(&self, at: &Location, mode: FlockMode) -> Result<FlockGuard> {
        let key = (at.path(), mode);
        let adopted = self.idle.lock().get_mut(&key).and_then(Vec::pop);
        let outcome = match adopted {
            Some(outcome) => outcome,
            None => self.spawn(at, &key)?,
        };

        let mut wait = FlockWait {
            waiters: self,
            key,
            outcome,
        };
        (&mut wait.outcome)
            .await
            .expect("the thread sends before it ends")
    }

    fn spawn(&self, at: &Location, key: &FlockKey) -> Result<FlockOutcome> {
        let file = lock_file::open_or_make(at)?;
        let (sender, outcome) = oneshot::channel();
        let idle = Arc::clone(&self.idle);
        let key = key.clone();
        let place = at.clone();

        std::thread::Builder::new()
            .name("leasehold-flock".to_owned())
            .stack_size(STACK_SIZE)
            .spawn(move || {
                let (_, mode) = key;
                let locked = file.lock(mode.blocking(), &place);

                let mut threads = idle.lock();
                // A wait that has ended has not taken the guard, so it is dropped here.
                let _ = sender.send(locked.map(|_| FlockGuard::of_locked(file, mode)));
                // If this thread is idle, its guard is received and dropped here.
                threads.retain(|_, outcomes| {
                    outcomes.retain_mut(is_pending);
                    !outcomes.is_empty()
                });
            })
            .map_err(|error| at.io_error(error, "start a thread to wait for"))?;
        Ok(outcome)
    }
}

/// Whether a thread still sleeps. If it has sent its guard, the guard is received and dropped.
fn is_pending(outcome: &mut FlockOutcome) -> bool {
    matches!(outcome.try_recv(), Err(TryRecvError::Empty))
}

/// A wait for a thread. If it is dropped, the thread goes idle, or its guard is dropped.
struct FlockWait<'a> {
    waiters: &'a FlockWaiters,
    key: FlockKey,
    outcome: FlockOutcome,
}

impl Drop for FlockWait<'_> {
    fn drop(&mut self) {
        let mut threads = self.waiters.idle.lock();
        if is_pending(&mut self.outcome) {
            let (_, ended) = oneshot::channel();
            let outcome = std::mem::replace(&mut self.outcome, ended);
            threads.entry(self.key.clone()).or_default().push(outcome);
        }
    }
}

/// The stack of a thread that only sleeps.
const STACK_SIZE: usize = 64 * 1024;
