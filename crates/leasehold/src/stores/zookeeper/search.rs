//! Searching for a claim's node by the claim's id.

use super::claims::{Node, TrackedClaim};
use super::lock_node::LockNode;
use crate::{ClaimId, Result};

/// Returns whether a claim has a node. `missing` is the node that does not exist any more.
pub(super) async fn search(
    lock_node: LockNode<'_>,
    id: ClaimId,
    tracked: &TrackedClaim,
    missing: Option<&Node>,
) -> Result<bool> {
    let found = lock_node.find(id).await?.map(|(_, node)| node);
    Ok(tracked.searched(missing, found))
}

/// Returns whether a claim has another node than the missing one.
///
/// A claim has another node only if the reply to a request was lost. Otherwise no search is
/// needed.
pub(super) async fn search_missing(
    lock_node: LockNode<'_>,
    id: ClaimId,
    tracked: &TrackedClaim,
    missing: &Node,
) -> Result<bool> {
    if tracked.has_lost_reply() {
        return search(lock_node, id, tracked, Some(missing)).await;
    }
    Ok(tracked.searched(Some(missing), None))
}
