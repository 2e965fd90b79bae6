//! The difference between two scans.

use leasehold::LockState;
use leasehold::store::comparable;
use serde::Serialize;

use super::snapshot::{Snapshot, StatusJson};
use crate::show::LockJson;

/// The difference that a page applies to the state that it shows.
#[derive(Serialize)]
pub(super) struct Changes<'a> {
    #[serde(flatten)]
    status: StatusJson<'a>,
    /// The locks that are new or differ.
    changed: Vec<LockJson<'a>>,
    /// The names of locks that have become free.
    removed: Vec<&'a str>,
}

impl<'a> Changes<'a> {
    /// Returns the changes of names that begin with a prefix; `None` if there are none.
    pub(super) fn between(before: &'a Snapshot, after: &'a Snapshot, prefix: &str) -> Option<Self> {
        let is_concerned = |name: &str| name.starts_with(prefix);
        let differing = after.locks.iter().filter(|(name, lock_state)| {
            let before = before.locks.get(*name);
            is_concerned(name) && before.is_none_or(|before| differ(before, lock_state))
        });
        let removed = before
            .locks
            .keys()
            .filter(|name| is_concerned(name) && !after.locks.contains_key(name.as_str()));

        let changes = Self {
            status: after.status(),
            changed: differing.map(|(_, lock_state)| lock_state.into()).collect(),
            removed: removed.map(String::as_str).collect(),
        };
        let is_same = changes.changed.is_empty()
            && changes.removed.is_empty()
            && before.error == after.error
            && before.skipped == after.skipped
            && before.is_complete == after.is_complete;
        (!is_same).then_some(changes)
    }
}

/// Whether more differs than the times that pass by themselves.
fn differ(before: &LockState, after: &LockState) -> bool {
    before != after && comparable(before) != comparable(after)
}
