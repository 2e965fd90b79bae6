//! Replacing a lock's node whose numbers are exhausted.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::lock_node::{LockNode, Removal};
use super::queue::Queue;
use super::{ZooKeeper, generation};
use crate::{OnContention, Result};

/// Removes the exhausted node once it has no children. The next claim creates it again.
///
/// Returns `false` if claims with earlier numbers still hold the lock.
pub(super) async fn replace(
    store: &ZooKeeper,
    lock_node: LockNode<'_>,
    on_contention: OnContention,
) -> Result<bool> {
    let deadline = Instant::now() + REMOVAL_TIMEOUT;
    loop {
        let (children, watcher) = match lock_node.remove_exhausted().await? {
            Removal::Done => {
                store.exhausted.remove(lock_node.path);
                return Ok(true);
            }
            Removal::InUse(children, watcher) => (children, watcher),
        };

        let queue = Queue::read(&children, store.dialect())?;
        let is_in_order = queue
            .members
            .first()
            .is_some_and(|first| !generation::is_exhausted(first.sequence));
        if is_in_order && on_contention == OnContention::Fail {
            return Ok(false);
        }

        match timeout_at(deadline, watcher.changed()).await {
            Ok(_event) => {}
            Err(_elapsed) if is_in_order => return Ok(false),
            Err(_elapsed) => return Err(generation::used_by_others(lock_node.path)),
        }
    }
}

/// How long one call waits until an exhausted node has no children. The engine repeats the call
/// three times within the ten seconds of its reply timeout.
const REMOVAL_TIMEOUT: Duration = Duration::from_millis(2_500);
