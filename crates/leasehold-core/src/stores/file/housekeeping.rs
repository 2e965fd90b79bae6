//! Removes the files of free names.
//!
//! The process that leaves a queue empty notes the name. About [`LINGER`] later, or when the store
//! closes, it removes the files if the name is still free. So a name in steady use keeps its files,
//! and acquiring it stays fast. The files that a crashed process leaves are removed by the next
//! process that frees the name, or by [`remove_unused`], which removes old records too.
//!
//! Removal is safe against arrivals. It holds the lock of the queue file, and it locks `NAME.lock`
//! exclusively. A leasehold process that opened a file before it was removed compares it with the
//! path after locking it, and opens the new file.
//!
//! flock(1) does not compare the two. So a `NAME.lock` stays if another process holds it or waits
//! for it, or if leasehold did not make it: see [`lock_file`](super::lock_file).

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::folder::location::Location;
use super::folder_counter;
use super::lock_file;
use super::process::remove_stale;
use super::protocol::{Missing, Transaction};
use super::queue_file::{Locking, QueueFile};
use super::record_file;
use super::shared::Shared;
use crate::runtime::background::{self, run_blocking};
use crate::store::Cleanup;
use crate::{Name, Result};

/// Notes a name whose queue is empty.
pub(super) fn note(shared: &Arc<Shared>, name: &Name) {
    if shared.idle_names.note(name) {
        spawn_rounds(shared);
    }
}

/// Removes the files of all noted names, because the store closes.
///
/// These are the names of the last two seconds, so it takes milliseconds.
pub(super) fn finish(shared: &Arc<Shared>) {
    while shared.idle_names.begin_round() {
        remove_due(shared);
    }
    drop(shared.idle_names.lock_removal());
}

/// Removes the files of every free name, including names that only dead processes used.
pub(super) fn remove_unused(shared: &Arc<Shared>) -> Result<Cleanup> {
    let folder = shared.folder();
    let mut cleanup = Cleanup::default();
    for name in folder.names_of_files()? {
        match remove_left(shared, &name) {
            Ok(Removal::Removed) => cleanup.removed += 1,
            Ok(Removal::InUse | Removal::Busy) => cleanup.in_use += 1,
            Ok(Removal::Missing) => {}
            Err(error) => {
                let store = format!("file:{}", folder.path().display());
                let error = error.during("remove the files", &store, Some(name.as_str()));
                cleanup.skipped.push(error);
            }
        }
    }

    for name in folder.names_of_records()? {
        match remove_record(shared, &name) {
            Ok(is_removed) => cleanup.removed += u64::from(is_removed),
            Err(error) => {
                let store = format!("file:{}", folder.path().display());
                let error = error.during("remove the record", &store, Some(name.as_str()));
                cleanup.skipped.push(error);
            }
        }
    }

    folder.remove_abandoned();
    remove_stale(&folder);
    Ok(cleanup)
}

/// Runs rounds until no name is noted. A closing store does not wait for the next round.
fn spawn_rounds(shared: &Arc<Shared>) {
    let weak = Arc::downgrade(shared);
    background::spawn_restarting(move || run_rounds(weak.clone()));
}

async fn run_rounds(weak: Weak<Shared>) {
    loop {
        tokio::time::sleep(LINGER).await;
        let Some(shared) = weak.upgrade() else {
            return;
        };
        if !shared.idle_names.begin_round() {
            return;
        }

        let removed = run_blocking("removing the files of free names", move || {
            for name in remove_due(&shared) {
                note(&shared, &name);
            }
        });
        if let Err(error) = removed.await {
            tracing::debug!(%error, "the files of free names stay until the next round");
        }
    }
}

/// Removes the files of the names that are due. Returns the names whose queues were busy.
fn remove_due(shared: &Arc<Shared>) -> Vec<Name> {
    let _removal = shared.idle_names.lock_removal();
    let mut due = shared.idle_names.take_due();
    due.retain(|name| match remove_if_free(shared, name, Missing::Keep) {
        Ok(removal) => matches!(removal, Removal::Busy),
        // The files stay. `leasehold gc` reports why.
        Err(error) => {
            tracing::debug!(%error, %name, "could not remove the files of a free name");
            false
        }
    });
    due
}

enum Removal {
    Removed,
    InUse,
    /// Another process is changing the queue.
    Busy,
    Missing,
}

/// Removes the record of a name if its last use is long ago. No claim can add to it meanwhile.
fn remove_record(shared: &Arc<Shared>, name: &Name) -> Result<bool> {
    let at = Location::record(&shared.folder(), name);
    if !record_file::is_older(&at, shared.records_kept)? {
        return Ok(false);
    }

    let begun = Transaction::begin(shared, name, Missing::Make, Locking::Try, None)?;
    let Some(transaction) = begun else {
        return Ok(false);
    };
    let removed = if transaction.queue.is_free() {
        record_file::remove_older(&at, shared.records_kept)
    } else {
        Ok(false)
    };
    transaction.queue.unlock();
    // The queue file was made again.
    note(shared, name);
    removed
}

/// Removes the files like [`remove_if_free`], for a name whose processes may have crashed. Only its
/// `NAME.lock` may be left.
fn remove_left(shared: &Arc<Shared>, name: &Name) -> Result<Removal> {
    let folder = shared.folder();
    let is_queue_missing = Location::queue(&folder, name).stat()?.is_none();
    if is_queue_missing && !lock_file::is_made_by_leasehold(&Location::lock(&folder, name))? {
        return Ok(Removal::Missing);
    }
    // The queue file is made again, because its lock protects the removal.
    remove_if_free(shared, name, Missing::Make)
}

/// Removes the files of a name if no living process is in its queue.
fn remove_if_free(shared: &Arc<Shared>, name: &Name, missing: Missing) -> Result<Removal> {
    shared.kept_queue_files.close(name);
    shared.kept_lock_files.close(name);
    let begun = Transaction::begin(shared, name, missing, Locking::Try, None)?;
    let Some(mut transaction) = begun else {
        return Ok(Removal::Busy);
    };

    transaction.remove_dead()?;
    let queue = transaction.queue;
    let removal = if queue.is_missing() {
        Ok(Removal::Missing)
    } else if queue.is_free() {
        remove_files(shared, &queue, name)
    } else {
        Ok(Removal::InUse)
    };

    let (_, to_wake) = queue.unlock();
    shared.wake(to_wake);
    removal
}

/// Removes the files of a name whose empty queue is locked.
fn remove_files(shared: &Shared, queue: &QueueFile, name: &Name) -> Result<Removal> {
    let folder = shared.folder();
    folder_counter::raise(&folder, shared.boot, queue.highest_token())?;

    // The folder may have been replaced since the queue was locked. The new files stay.
    let at = Location::queue(&folder, name);
    if !queue.is_at(&at)? || !lock_file::remove(&Location::lock(&folder, name))? {
        return Ok(Removal::InUse);
    }
    at.remove()?;
    at.remove_empty_parents();
    Ok(Removal::Removed)
}

/// The shortest time for which the files of a free name stay. The longest is twice this time.
const LINGER: Duration = Duration::from_secs(1);
