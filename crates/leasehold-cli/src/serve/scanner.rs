//! Reads the store, at most once for all requests of a moment.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use leasehold::{Error, Locks, Result, Token};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::snapshot::Snapshot;
use crate::scan::{scan, scan_records};

/// Reads the locks when a request needs them. Without requests it sends nothing to the store.
#[derive(Debug)]
pub(super) struct Scanner {
    locks: Locks,
    prefix: String,
    /// The prefix of the jobs whose records are read too.
    once: Option<String>,
    last: Mutex<Option<Arc<Snapshot>>>,
}

impl Scanner {
    pub(super) fn new(locks: Locks, prefix: String, once: Option<String>) -> Self {
        Self {
            locks,
            prefix,
            once,
            last: Mutex::new(None),
        }
    }

    /// Sends a request to the store, and returns the locks as of a moment ago if it replies.
    ///
    /// An earlier scan does not prove that the store can be read now. Without a reply the locks are
    /// those of an earlier scan, with the error.
    ///
    /// # Cancel safety
    /// As [`current`](Self::current).
    pub(super) async fn checked(&self) -> Arc<Snapshot> {
        let started = Instant::now();
        let checked = timeout(SCAN_MAX, async {
            self.check().await?;
            // The store replies again, whatever an earlier scan has found.
            Ok(self
                .read_unless(|last| last.error.is_none() || last.ended > started)
                .await)
        });
        match checked.await.unwrap_or_else(|_| Err(too_late())) {
            Ok(snapshot) => snapshot,
            Err(error) => self.note_failure(&error),
        }
    }

    /// Reads one lock. A reply proves that locks can be read, even if this lock is damaged.
    async fn check(&self) -> Result<()> {
        match self.locks.inspect(CHECKED_NAME).await {
            Err(error) if error.is_damaged() || error.is_mismatch() => Ok(()),
            // This lock may be forbidden, and others not.
            Err(error) if error.is_denied() => self.locks.list(&self.prefix, 1).await.map(drop),
            inspected => inspected.map(drop),
        }
    }

    /// Replaces the last scan by one that failed, so that others see the failure at once.
    fn note_failure(&self, error: &Error) -> Arc<Snapshot> {
        // A scan is under way. It notes what it finds.
        let Ok(mut last) = self.last.try_lock() else {
            return Arc::new(self.failed(error, None));
        };

        let snapshot = Arc::new(self.failed(error, last.as_deref()));
        *last = Some(Arc::clone(&snapshot));
        snapshot
    }

    /// Returns the locks, as of a moment ago.
    ///
    /// # Cancel safety
    /// If the future is dropped, the next call reads the locks again.
    pub(super) async fn current(&self) -> Arc<Snapshot> {
        self.read_unless(|_| true).await
    }

    /// Returns the last scan if it is fresh and usable, and reads the locks otherwise.
    async fn read_unless(&self, is_usable: impl FnOnce(&Snapshot) -> bool) -> Arc<Snapshot> {
        let mut last = self.last.lock().await;
        if let Some(last) = &*last
            && last.ended.elapsed() < freshness(last)
            && is_usable(last)
        {
            return Arc::clone(last);
        }

        let snapshot = Arc::new(self.scan(last.as_deref()).await);
        *last = Some(Arc::clone(&snapshot));
        snapshot
    }

    /// Breaks a hold. The next request sees the new state.
    pub(super) async fn break_hold(&self, name: &str, token: Token) -> Result<bool> {
        let broken = self.locks.break_hold(name, token).await?;
        *self.last.lock().await = None;
        Ok(broken.is_some())
    }

    async fn scan(&self, before: Option<&Snapshot>) -> Snapshot {
        let started = Instant::now();
        let read = timeout(SCAN_MAX, self.read())
            .await
            .unwrap_or_else(|_| Err(too_late()));

        let mut snapshot = match read {
            Ok(snapshot) => snapshot,
            Err(error) => self.failed(&error, before),
        };
        snapshot.took = started.elapsed();
        snapshot
    }

    /// The locks of the last successful scan, with the reason why this one failed.
    fn failed(&self, error: &Error, before: Option<&Snapshot>) -> Snapshot {
        let unread = Snapshot::unread(self.locks.url().to_owned());
        let error = Some(error.to_string());
        match before {
            None => Snapshot { error, ..unread },
            Some(before) => Snapshot {
                at: before.at,
                locks: before.locks.clone(),
                is_complete: before.is_complete,
                error,
                ..unread
            },
        }
    }

    async fn read(&self) -> Result<Snapshot> {
        let at = SystemTime::now();
        let mut skipped = Vec::new();
        let mut found = scan(&self.locks, &self.prefix, |error| skip(&mut skipped, error)).await?;
        let last_successes = match &self.once {
            Some(prefix) => {
                let skip = |error| skip(&mut skipped, error);
                let records = scan_records(&self.locks, prefix, skip).await?.into_iter();
                let last = |(name, record): (_, leasehold::Record)| {
                    Some((name, record.last_success()?.ended_at))
                };
                Some(records.filter_map(last).collect())
            }
            None => None,
        };

        for lock_state in found.locks.values_mut() {
            // The remaining lease on each server differs at every inspection.
            lock_state.servers.clear();
        }
        skipped.sort_unstable();

        Ok(Snapshot {
            at,
            locks: found.locks,
            is_complete: found.is_complete,
            last_successes,
            skipped,
            ..Snapshot::unread(self.locks.url().to_owned())
        })
    }
}

/// Notes the error of a lock that cannot be read, unless it is one of the whole store.
fn skip(skipped: &mut Vec<String>, error: Error) -> Result<()> {
    if !error.is_denied() && !error.is_damaged() && !error.is_unsupported() {
        return Err(error);
    }
    skipped.push(error.to_string());
    Ok(())
}

fn too_late() -> Error {
    Error::unavailable(format!("the locks could not be read within {SCAN_MAX:?}"))
}

/// How long a scan serves requests. A scan that takes long is repeated less often, so that scans
/// take at most a tenth of the time. A failed scan is repeated soon.
fn freshness(snapshot: &Snapshot) -> Duration {
    match snapshot.error {
        None => (snapshot.took * 9).clamp(FRESH_MIN, FRESH_MAX),
        Some(_) => RETRY_PAUSE,
    }
}

/// The shortest time between two scans: a page shows a change within this time.
pub(super) const FRESH_MIN: Duration = Duration::from_millis(250);
/// The longest time: a Prometheus server that scrapes twice a minute gets new values.
const FRESH_MAX: Duration = Duration::from_secs(30);
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// After this time the store counts as unreachable. Prometheus waits 10 seconds for a reply.
const SCAN_MAX: Duration = Duration::from_secs(5);
/// The lock that is read to see whether the store replies. It need not be held.
const CHECKED_NAME: &str = "leasehold/serve";
