//! The locks of a store at one moment.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use leasehold::{LockState, Name};
use serde::Serialize;

use crate::format::time;
use crate::show::LockJson;

/// The result of one scan of the store.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// The store's URL without its password.
    pub(super) store: String,
    /// When the locks were read. After a failed scan, the time of the last one that succeeded.
    pub(super) at: SystemTime,
    /// The locks in use, by name.
    pub(super) locks: BTreeMap<String, LockState>,
    /// Whether there are no more locks than these.
    pub(super) is_complete: bool,
    /// When each job was last completed, if that was asked for.
    pub(super) last_successes: Option<Vec<(Name, SystemTime)>>,
    /// The locks that could not be read, and why.
    pub(super) skipped: Vec<String>,
    /// Why the last scan failed. The locks are then those of an earlier scan.
    pub(super) error: Option<String>,
    /// How long the scan took.
    pub(super) took: Duration,
    pub(super) ended: Instant,
}

impl Snapshot {
    /// A store that has not been read.
    pub(super) fn unread(store: String) -> Self {
        Self {
            store,
            at: SystemTime::UNIX_EPOCH,
            locks: BTreeMap::new(),
            is_complete: false,
            last_successes: None,
            skipped: Vec::new(),
            error: None,
            took: Duration::ZERO,
            ended: Instant::now(),
        }
    }

    /// The locks whose names begin with a prefix.
    pub(super) fn locks_of<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a LockState> {
        let from = self.locks.range(prefix.to_owned()..);
        from.take_while(move |(name, _)| name.starts_with(prefix))
            .map(|(_, lock_state)| lock_state)
    }

    pub(super) fn json<'a>(&'a self, prefix: &'a str) -> SnapshotJson<'a> {
        SnapshotJson {
            store: &self.store,
            status: self.status(),
            locks: self.locks_of(prefix).map(LockJson::from).collect(),
        }
    }

    pub(super) fn status(&self) -> StatusJson<'_> {
        StatusJson {
            at: time(self.at),
            complete: self.is_complete,
            error: self.error.as_deref(),
            skipped: &self.skipped,
        }
    }
}

/// What `/locks` replies.
#[derive(Serialize)]
pub(super) struct SnapshotJson<'a> {
    store: &'a str,
    #[serde(flatten)]
    status: StatusJson<'a>,
    locks: Vec<LockJson<'a>>,
}

/// When and how far the store was read.
#[derive(Serialize)]
pub(super) struct StatusJson<'a> {
    at: jiff::Timestamp,
    complete: bool,
    error: Option<&'a str>,
    skipped: &'a [String],
}
