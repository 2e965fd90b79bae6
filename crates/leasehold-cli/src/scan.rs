//! Reads the locks in use, for `ls` and `serve`.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::iter;
use leasehold::store::is_part_of;
use leasehold::{Entry, Error, LockState, Locks, Name, Record, Result};

use crate::show::is_free;

/// The most locks that are read: more than a user reads, but few enough to fetch in seconds. Each
/// one is a series of every metric.
pub(crate) const NAMES_MAX: usize = 10_000;
/// How long the listing of the names may take.
const LIST_MAX: Duration = Duration::from_secs(10);
/// How many locks are read at the same time, so that a scan does not wait for each reply.
const CONCURRENT: usize = 32;

/// The locks in use, without those that number the slots of a semaphore.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) locks: BTreeMap<String, LockState>,
    /// Whether there are no more locks than these.
    pub(crate) is_complete: bool,
}

/// Reads the locks whose names begin with a prefix. `skip` gets the error of each lock that cannot
/// be read, and returns it unless this lock is skipped.
///
/// # Errors
/// The first error that `skip` returns.
pub(crate) async fn scan(
    locks: &Locks,
    prefix: &str,
    mut skip: impl FnMut(Error) -> Result<()>,
) -> Result<Scan> {
    // A server with millions of keys takes seconds to list those of locks.
    let patient = locks.clone().reply_timeout(LIST_MAX)?;
    let mut names = patient.list(prefix, NAMES_MAX + 1).await?;
    let is_complete = names.len() <= NAMES_MAX;
    names.truncate(NAMES_MAX);

    let inspections = names
        .into_iter()
        .map(async |name| locks.inspect(name.as_str()).await);
    let mut inspected = iter(inspections).buffered(CONCURRENT);
    let mut in_use = BTreeMap::new();
    while let Some(lock_state) = inspected.next().await {
        match lock_state {
            // The lock may have become free since the names were listed.
            Ok(lock_state) if is_free(&lock_state) => {}
            Ok(lock_state) => {
                in_use.insert(lock_state.name.as_str().to_owned(), lock_state);
            }
            Err(error) => skip(error)?,
        }
    }

    remove_slot_numbers(&mut in_use);
    Ok(Scan {
        locks: in_use,
        is_complete,
    })
}

/// Reads the records of the jobs whose names begin with a prefix, in the order of their names.
/// `skip` is that of [`scan`].
///
/// # Errors
/// The first error that `skip` returns.
pub(crate) async fn scan_records(
    locks: &Locks,
    prefix: &str,
    mut skip: impl FnMut(Error) -> Result<()>,
) -> Result<Vec<(Name, Record)>> {
    let patient = locks.clone().reply_timeout(LIST_MAX)?;
    let names = patient.list_records(prefix, NAMES_MAX).await?;
    let reads = names
        .into_iter()
        .map(async |name| (locks.record(&name).await, name));
    let mut reads = iter(reads).buffered(CONCURRENT);

    let mut records = Vec::new();
    while let Some((record, name)) = reads.next().await {
        match record {
            // The store lists a record until it is removed, and reads it as empty when it is old.
            Ok(record) if record.completions.is_empty() && record.failure.is_none() => {}
            Ok(record) => records.push((name, record)),
            Err(error) => skip(error)?,
        }
    }
    Ok(records)
}

fn remove_slot_numbers(locks: &mut BTreeMap<String, LockState>) {
    let numbers: Vec<String> = locks
        .values()
        .filter(|lock_state| is_number(lock_state, |name| locks.get(name)))
        .map(|lock_state| lock_state.name.as_str().to_owned())
        .collect();

    for name in numbers {
        locks.remove(&name);
    }
}

/// Whether a lock is the number of a slot in use. `find` returns the lock with a name, if it is
/// shown.
fn is_number<'a>(lock: &LockState, find: impl FnOnce(&str) -> Option<&'a LockState>) -> bool {
    let Some((semaphore, _)) = lock.name.as_str().rsplit_once("/slot/") else {
        return false;
    };
    let Some(semaphore) = find(semaphore) else {
        return false;
    };

    let is_slot = |entry: &Entry| {
        let mut holders = semaphore.holders();
        holders.any(|holder| is_part_of(entry.id, holder.id))
    };
    let is_claimed = !lock.entries.is_empty() && lock.external_holders.is_empty();
    is_claimed && lock.entries.iter().all(is_slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn scan_reads_at_most_names_max_locks() {
        let locks = leasehold::open("memory:").await.unwrap();
        let mut guards = Vec::new();
        for number in 0..=NAMES_MAX {
            guards.push(locks.mutex(format!("{number:05}")).acquire().await.unwrap());
        }
        let found = scan(&locks, "", Err).await.unwrap();
        assert_eq!(found.locks.len(), NAMES_MAX);
        assert!(!found.is_complete);
        assert!(
            found.locks.contains_key("09999"),
            "the first 10,000 names in order are read"
        );
    }
}
