//! How a line is edited: in place if that takes microseconds, else on a thread that may wait.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use super::Shared;
use super::line::{Edit, LineFile, Locked, Missing};
use crate::{Error, Name, Result, background};

impl Shared {
    /// Does `work` on a line under its lock, then wakes whom it concerns. `Ok(None)` if there is no line file and none
    /// is to be made.
    ///
    /// Work that need not wait, for another's edit or for the disk, is done in place; else on a thread that may wait.
    pub(super) async fn edit<T, W>(self: &Arc<Self>, name: &Name, missing: Missing, work: W) -> Result<Option<T>>
    where
        T: Send + 'static,
        W: FnOnce(&Shared, &mut Edit) -> Result<T> + Send + 'static,
    {
        let at = self.folder.line(name);
        if missing == Missing::Make {
            at.make_parent()?;
        }
        let Some(line) = LineFile::open(&self.folder, at, missing)? else { return Ok(None) };
        match line.try_lock()? {
            Ok(locked) => match locked.read(self.boot)? {
                Some(edit) if !edit.needs_sync() => self.finish(edit, work).map(Some),
                Some(edit) => {
                    let shared = Arc::clone(self);
                    apart(move || shared.finish(edit, work)).await.map(Some)
                }
                None => self.edit_apart(name, missing, work).await,
            },
            Err(_busy) => self.edit_apart(name, missing, work).await,
        }
    }

    /// One thread per name and process waits for another's edit, however often it is asked: whoever is stopped in the
    /// middle of one must not use up all threads.
    async fn edit_apart<T, W>(self: &Arc<Self>, name: &Name, missing: Missing, work: W) -> Result<Option<T>>
    where
        T: Send + 'static,
        W: FnOnce(&Shared, &mut Edit) -> Result<T> + Send + 'static,
    {
        let (shared, at) = (Arc::clone(self), self.folder.line(name));
        let turn = self.slow.turn(name).lock_owned().await;
        let wait_and_work = move || {
            let _turn = turn;
            loop {
                let Some(line) = LineFile::open(&shared.folder, at.clone(), missing)? else { return Ok(None) };
                if let Some(edit) = line.lock().and_then(|locked: Locked| locked.read(shared.boot))? {
                    return shared.finish(edit, work).map(Some);
                }
            }
        };
        apart(wait_and_work).await
    }

    fn finish<T>(&self, mut edit: Edit, work: impl FnOnce(&Self, &mut Edit) -> Result<T>) -> Result<T> {
        let answer = work(self, &mut edit);
        self.wake(edit.close());
        answer
    }
}

/// Whose turn it is to wait for the line file of a name.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<Name, Arc<AsyncMutex<()>>>>);

impl Turns {
    fn turn(&self, name: &Name) -> Arc<AsyncMutex<()>> {
        let mut turns = self.0.lock();
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(name.clone()).or_default())
    }
}

/// Runs what may wait on a thread that may. It runs to its end even if nobody listens any more.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = background::handle().spawn_blocking(work).await;
    done.unwrap_or_else(|failed| Err(Error::unavailable(format!("a thread of the file store failed: {failed}"))))
}
