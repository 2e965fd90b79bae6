//! A wait for a lock that the script of this command holds.
//!
//! `leasehold acquire --while-pid $$` holds a lock until the calling script ends. If this script
//! then runs a command under the same lock, both wait for each other.

use std::fs;

use leasehold::{Entry, LockState};

use crate::format::NameArgument;
use crate::process_state::{ancestors, leasehold_here, pid_behind};

/// Returns what to type if a holder keeps the lock until an ancestor of this process ends.
pub(crate) fn advice(lock_state: &LockState) -> Option<String> {
    let ancestors = ancestors();
    let mut holders = lock_state.holders();
    let (holder, owner) = holders.find_map(|holder| {
        let watched = watched_processes(holder);
        let owner = ancestors.iter().find(|pid| watched.contains(pid))?;
        Some((holder, *owner))
    })?;

    let name = NameArgument(lock_state.name.as_str());
    let token = holder.token()?;
    Some(format!(
        "its owner, process {owner}, has started this command; to release it: leasehold release \
         {name} --token {token}"
    ))
}

/// The processes whose end the process of a holder waits for: it has a descriptor of each one.
fn watched_processes(holder: &Entry) -> Vec<i32> {
    let leasehold = leasehold_here(&holder.info);
    let descriptors =
        leasehold.and_then(|process| fs::read_dir(format!("/proc/{}/fdinfo", process.pid)).ok());

    let infos = descriptors.into_iter().flatten().flatten();
    infos.filter_map(|info| pid_behind(&info.path())).collect()
}
