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
type IdleThreads = HashMap<FlockKey, Vec<Outcome>>;

/// The file and the mode that a thread waits for.
type FlockKey = (PathBuf, FlockMode);

type Outcome = oneshot::Receiver<Result<FlockGuard>>;

impl FlockWaiters {
    /// Waits for the lock.
    ///
    /// # Cancel safety
    /// If this is dropped, the lock is not taken.
    pub(super) async fn wait(&self, at: &Location, mode: FlockMode) -> Result<FlockGuard> {
        let key = (at.path(), mode);
        let idle = self.idle.lock().get_mut(&key).and_then(Vec::pop);
        let outcome = match idle {
            Some(outcome) => outcome,
            None => self.spawn(at, &key)?,
        };

        let mut wait = FlockWait {
            waiters: self,
            key,
            outcome: Some(outcome),
        };
        let outcome = wait.outcome.as_mut().expect("only a drop takes it");
        outcome.await.expect("the thread sends before it ends")
    }

    fn spawn(&self, at: &Location, key: &FlockKey) -> Result<Outcome> {
        let file = lock_file::open_or_make(at)?;
        let (sender, outcome) = oneshot::channel();
        let idle = Arc::clone(&self.idle);
        let key = key.clone();
        let place = at.clone();

        let sleep = move || {
            let mode = key.1;
            let locked = file.lock(mode.blocking(), &place);
            let mut idle = idle.lock();
            // If the wait ended at this moment, the guard is dropped here.
            let _ = sender.send(locked.map(|_| FlockGuard::of_locked(file, mode)));
            drop_received(&mut idle, &key);
        };
        std::thread::Builder::new()
            .name("leasehold-flock".to_owned())
            .stack_size(STACK_SIZE)
            .spawn(sleep)
            .map_err(|error| at.io_error(error, "start a thread to wait for"))?;
        Ok(outcome)
    }
}

/// Drops what was sent to idle threads' receivers, and so unlocks the file.
fn drop_received(idle: &mut IdleThreads, key: &FlockKey) {
    if let Some(outcomes) = idle.get_mut(key) {
        outcomes.retain_mut(|outcome| outcome.try_recv().is_err_and(|e| e == TryRecvError::Empty));
    }
    idle.retain(|_, outcomes| !outcomes.is_empty());
}

/// A wait for a thread. If it is dropped, the thread goes idle, or its guard is dropped.
struct FlockWait<'a> {
    waiters: &'a FlockWaiters,
    key: FlockKey,
    outcome: Option<Outcome>,
}

impl Drop for FlockWait<'_> {
    fn drop(&mut self) {
        let mut idle = self.waiters.idle.lock();
        let Some(mut outcome) = self.outcome.take() else {
            return;
        };
        if outcome
            .try_recv()
            .is_err_and(|error| error == TryRecvError::Empty)
        {
            idle.entry(self.key.clone()).or_default().push(outcome);
        }
    }
}

/// The stack of a thread that only sleeps.
const STACK_SIZE: usize = 64 * 1024;
