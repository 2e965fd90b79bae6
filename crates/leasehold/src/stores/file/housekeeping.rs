//! Removes the files of free names.
//!
//! The process that leaves a queue empty notes the name. About [`LINGER`] later, or when the store
//! closes, it removes the files if the name is still free. So a name in steady use keeps its files,
//! and acquiring it stays fast. The files that a crashed process leaves are removed by the next
//! process that frees the name, or by [`remove_unused`].
//!
//! Removal is safe against arrivals. It holds the lock of the queue file, and it locks `NAME.lock`
//! exclusively. A leasehold process that opened a file before it was removed compares it with the
//! path after locking it, and opens the new file.
//!
//! flock(1) does not compare the two. So a `NAME.lock` stays if another process holds it or waits
//! for it, or if leasehold did not make it: see [`lock_file`](super::lock_file).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::folder_counter;
use super::lock_file::{self, LockFileRemoval};
use super::process::remove_stale;
use super::protocol;
use super::queue_file::{Missing, QueueFile, TryLock};
use super::shared::Shared;
use super::transaction::Transaction;
use super::wakeups::wake;
use crate::local_fs::io_error;
use crate::runtime::background;
use crate::store::Cleanup;
use crate::{Error, Name, Result};

/// The names that this process left free.
#[derive(Debug, Default)]
pub(super) struct IdleNames {
    generations: Mutex<Generations>,
    /// Held while the files of one name are removed. So a closing store waits for the removal that
    /// is under way.
    removal: Mutex<()>,
}

/// The noted names, in three sets. A round removes the files of the names that are due.
#[derive(Debug, Default)]
struct Generations {
    due: HashSet<Name>,
    older: HashSet<Name>,
    recent: HashSet<Name>,
    is_task_running: bool,
    /// Set by tests that change the files of free names.
    #[cfg(test)]
    keeps_files: bool,
}

impl IdleNames {
    #[cfg(test)]
    pub(super) fn keep_files(&self) {
        self.generations.lock().keeps_files = true;
    }

    /// Begins a round: older names become due, and recent names become older. Returns false if no
    /// name is noted. Then the task ends.
    fn begin_round(&self) -> bool {
        let mut generations = self.generations.lock();
        let recent = std::mem::take(&mut generations.recent);
        let older = std::mem::replace(&mut generations.older, recent);
        generations.due.extend(older);

        let is_empty = generations.due.is_empty() && generations.older.is_empty();
        generations.is_task_running = !is_empty;
        !is_empty
    }

    /// Waits for the removal that another thread has begun.
    fn wait_for_removal(&self) {
        drop(self.removal.lock());
    }

    fn next_due(&self) -> Option<Name> {
        let mut generations = self.generations.lock();
        let name = generations.due.iter().next()?.clone();
        generations.due.remove(&name);
        Some(name)
    }
}

/// Notes a name whose queue is empty.
pub(super) fn note(shared: &Arc<Shared>, name: &Name) {
    let mut generations = shared.idle_names.generations.lock();
    #[cfg(test)]
    if generations.keeps_files {
        return;
    }
    if !generations.recent.contains(name) {
        generations.due.remove(name);
        generations.older.remove(name);
        generations.recent.insert(name.clone());
    }

    if !generations.is_task_running {
        generations.is_task_running = true;
        spawn_rounds(shared);
    }
}

/// Removes the files of all noted names, because the store closes.
///
/// These are the names of the last two seconds, so it takes milliseconds.
pub(super) fn finish(shared: &Shared) {
    while shared.idle_names.begin_round() {
        remove_due(shared);
    }
    shared.idle_names.wait_for_removal();
}

/// Removes the files of every free name, including names that only dead processes used.
pub(super) fn remove_unused(shared: &Shared) -> Result<Cleanup> {
    let mut cleanup = Cleanup::default();
    for name in shared.folder.names_of_files()? {
        match remove_with_dead(shared, &name) {
            Ok(NameRemoval::Removed) => cleanup.removed += 1,
            Ok(NameRemoval::InUse | NameRemoval::Busy) => cleanup.in_use += 1,
            Ok(NameRemoval::Missing) => {}
            Err(error) => {
                let shown = shared.folder.path().display().to_string();
                let error = error.during(
                    "remove the files",
                    &format!("file:{shown}"),
                    Some(name.as_str()),
                );
                cleanup.skipped.push(error);
            }
        }
    }

    shared.folder.remove_abandoned();
    remove_stale(&shared.folder.members());
    Ok(cleanup)
}

/// Runs rounds until no name is noted. A closing store does not wait for the next round.
fn spawn_rounds(shared: &Arc<Shared>) {
    let shared = Arc::downgrade(shared);
    let rounds = async move {
        loop {
            tokio::time::sleep(LINGER).await;
            let Some(shared) = shared.upgrade() else {
                return;
            };

            if !shared.idle_names.begin_round() {
                return;
            }
            let remove = move || {
                for name in remove_due(&shared) {
                    note(&shared, &name);
                }
            };
            if background::handle().spawn_blocking(remove).await.is_err() {
                return;
            }
        }
    };
    background::handle().spawn(rounds);
}

/// Removes the files of the names that are due. Returns the names whose queues were busy.
fn remove_due(shared: &Shared) -> Vec<Name> {
    let mut busy = Vec::new();
    loop {
        let _one_at_a_time = shared.idle_names.removal.lock();
        let Some(name) = shared.idle_names.next_due() else {
            return busy;
        };

        match remove_if_free(shared, &name) {
            Ok(NameRemoval::Busy) => busy.push(name),
            Ok(_) => {}
            // The files stay. `leasehold gc` reports why.
            Err(error) => {
                tracing::debug!(%error, %name, "could not remove the files of a free name");
            }
        }
    }
}

enum NameRemoval {
    Removed,
    InUse,
    /// Another process is changing the queue.
    Busy,
    Missing,
}

/// Removes the files of a name if its queue is empty.
fn remove_if_free(shared: &Shared, name: &Name) -> Result<NameRemoval> {
    match open(shared, name, Missing::Keep)? {
        QueueAccess::Locked(transaction) => remove_files(shared, *transaction, name),
        QueueAccess::Busy => Ok(NameRemoval::Busy),
        QueueAccess::Missing => Ok(NameRemoval::Missing),
    }
}

/// Removes the files like [`remove_if_free`], for a name whose processes may have crashed. Only its
/// `NAME.lock` may be left.
fn remove_with_dead(shared: &Shared, name: &Name) -> Result<NameRemoval> {
    let lock_path = shared.folder.lock_path(name);
    let is_queue_missing = shared.folder.queue_path(name).stat()?.is_none();
    if is_queue_missing && !lock_file::is_made_by_leasehold(&lock_path)? {
        return Ok(NameRemoval::Missing);
    }

    // The queue file is made again, because its lock protects the removal.
    match open(shared, name, Missing::Make)? {
        QueueAccess::Locked(mut transaction) => {
            protocol::remove_dead(shared, &mut transaction)?;
            remove_files(shared, *transaction, name)
        }
        QueueAccess::Busy => Ok(NameRemoval::Busy),
        QueueAccess::Missing => Ok(NameRemoval::Missing),
    }
}

enum QueueAccess {
    Locked(Box<Transaction>),
    Busy,
    Missing,
}

fn open(shared: &Shared, name: &Name, missing: Missing) -> Result<QueueAccess> {
    let at = shared.folder.queue_path(name);
    let Some(file) = QueueFile::open(&shared.folder, at, missing)? else {
        return Ok(QueueAccess::Missing);
    };
    let TryLock::Locked(locked) = file.try_lock()? else {
        return Ok(QueueAccess::Busy);
    };

    let transaction = locked.read(shared)?;
    Ok(transaction.map_or(QueueAccess::Busy, |transaction| {
        QueueAccess::Locked(Box::new(transaction))
    }))
}

/// Removes the files of a locked queue if it is empty, and wakes waiters if it is not.
fn remove_files(shared: &Shared, transaction: Transaction, name: &Name) -> Result<NameRemoval> {
    shared.kept_queue_files.close(name);
    shared.kept_lock_files.close(name);
    let outcome = if transaction.entries().is_empty() {
        remove_both(shared, &transaction, name)
    } else {
        Ok(NameRemoval::InUse)
    };
    wake(shared, transaction.close());
    outcome
}

fn remove_both(shared: &Shared, transaction: &Transaction, name: &Name) -> Result<NameRemoval> {
    folder_counter::raise(&shared.folder, shared.boot, transaction.highest_token())?;

    // The folder may have been replaced since the queue was locked. The new files stay.
    let lock_path = shared.folder.lock_path(name);
    let at = shared.folder.queue_path(name);
    if !transaction.is_at(&at)? {
        return Ok(NameRemoval::InUse);
    }
    match lock_file::remove(&lock_path, &shared.folder.members())? {
        LockFileRemoval::Removed | LockFileRemoval::NotOurs => {}
        LockFileRemoval::InUse => return Ok(NameRemoval::InUse),
    }

    at.remove()
        .map_err(|error| removal_error(error, &at.path()))?;
    at.remove_empty_parents();
    Ok(NameRemoval::Removed)
}

/// The error for a file that cannot be removed.
pub(super) fn removal_error(error: Errno, path: &std::path::Path) -> Error {
    let described = io_error(error, "remove", path);
    match error {
        // In a folder with the sticky bit, only the owner of a file may remove it.
        Errno::PERM | Errno::ACCESS => {
            described.help("run `leasehold gc` as the owner of the file, or as root")
        }
        _ => described,
    }
}

/// The shortest time for which the files of a free name stay. The longest is twice this time.
const LINGER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text).expect("a good name")
    }

    #[test]
    fn name_is_removed_in_the_second_round_after_it_was_noted() {
        let idle = IdleNames::default();
        idle.generations.lock().recent.insert(name("a"));

        assert!(idle.begin_round());
        assert_eq!(idle.next_due(), None);
        assert!(idle.begin_round());
        assert_eq!(idle.next_due(), Some(name("a")));
        assert_eq!(idle.next_due(), None);
        assert!(!idle.begin_round());
    }
}
