//! Replacing a lock's node whose numbers are exhausted.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use zookeeper_client::{Acl, AuthId, Error as ZkError, OneshotWatcher, Permission, Stat};

use super::lock_node::LockNode;
use super::queue::Queue;
use super::reply_error::{on_node, store_error};
use super::{ZooKeeper, generation};
use leasehold_core::Result;
use leasehold_core::store::OnContention;

/// Removes the exhausted node once it has no children. The next claim creates it again.
///
/// Returns `false` if claims with earlier numbers still exist.
pub(super) async fn replace(
    store: &ZooKeeper,
    lock_node: LockNode<'_>,
    on_contention: OnContention,
) -> Result<bool> {
    let started = Instant::now();

    loop {
        let (children, watcher) = match remove_exhausted(lock_node).await? {
            NodeRemoval::Done => {
                store.exhausted.remove(lock_node.path);
                return Ok(true);
            }
            NodeRemoval::InUse(children, watcher) => (children, watcher),
        };

        let queue = Queue::read(&children, store.dialect())?;
        let first = queue.members.first();
        let is_in_order = first.is_some_and(|first| !generation::is_exhausted(first.sequence));
        if is_in_order && on_contention == OnContention::Fail {
            return Ok(false);
        }

        let wait_max = if is_in_order {
            HELD_WAIT
        } else {
            REMOVAL_TIMEOUT
        };
        match timeout_at(started + wait_max, watcher.changed()).await {
            Ok(_event) => {}
            Err(_elapsed) if is_in_order => return Ok(false),
            Err(_elapsed) => return Err(generation::used_by_others(lock_node.path)),
        }
    }
}

/// The outcome of removing a lock's node whose numbers are exhausted.
#[derive(Debug)]
enum NodeRemoval {
    /// The node is gone, or has been replaced already.
    Done,
    /// The node has these children. The watcher reports when they change.
    InUse(Vec<String>, OneshotWatcher),
}

/// Removes the lock's node if its numbers are exhausted and it has no children.
///
/// The next claim creates it again.
async fn remove_exhausted(lock_node: LockNode<'_>) -> Result<NodeRemoval> {
    let client = lock_node.client();
    let path = lock_node.path;

    loop {
        let (acl, stat) = match client.get_acl(path).await {
            Err(ZkError::NoNode) => return Ok(NodeRemoval::Done),
            found => found.map_err(on_node("read", path))?,
        };
        if !generation::is_exhausted_node(&stat) {
            return Ok(NodeRemoval::Done);
        }
        if !is_restored_by_create(lock_node, &acl, &stat) {
            return Err(generation::exhausted(path));
        }

        match client.delete(path, Some(stat.version)).await {
            Ok(()) | Err(ZkError::NoNode) => return Ok(NodeRemoval::Done),
            Err(ZkError::NotEmpty | ZkError::BadVersion) => {}
            Err(error @ ZkError::NoAuth) => {
                return Err(generation::exhausted(path).caused_by(error));
            }
            Err(error) => return Err(store_error(error)),
        }

        match client.list_and_watch_children(path).await {
            Ok((children, _)) if children.is_empty() => {}
            Ok((children, watcher)) => return Ok(NodeRemoval::InUse(children, watcher)),
            Err(ZkError::NoNode) => return Ok(NodeRemoval::Done),
            Err(error) => return Err(on_node("read", path)(error)),
        }
    }
}

/// Whether the next claim would create the node with the same data and ACL.
fn is_restored_by_create(lock_node: LockNode<'_>, acl: &[Acl], stat: &Stat) -> bool {
    let settings = lock_node.address.settings;
    let [entry] = acl else { return false };

    let is_anyone = *entry.auth_id() == AuthId::anyone();
    let is_own_acl = entry.permission() == Permission::ALL && is_anyone != settings.private;
    stat.data_length == 0 && is_own_acl && !settings.dialect.leaves_nodes()
}

/// How long one call waits for claims with earlier numbers to end. The engine repeats the call
/// until its deadline. It is shorter than the default reply timeout, after which the store counts as
/// unavailable.
const HELD_WAIT: Duration = Duration::from_millis(500);

/// How long one call waits for claims of other clients with the last numbers. The engine sends the
/// call three times, which together are shorter than the default reply timeout, and repeats all that
/// until its deadline.
const REMOVAL_TIMEOUT: Duration = HELD_WAIT;
