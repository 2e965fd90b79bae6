//! Entering the queue of a lock: the claim's node is found or created, and its position read.

use std::sync::Arc;

use super::claims::{Node, NodeState, TrackedNode};
use super::lock_node::LockNode;
use super::queue::{Queue, QueuePosition};
use super::search::find;
use super::{ZooKeeper, generation, leave, replacement};
use leasehold_core::Result;
use leasehold_core::store::{Claim, OnContention, Standing, check_shrinks, units};

/// Derives the standing of a claim from a listing, and records the nodes that it watches from now
/// on.
pub(super) fn evaluate(
    store: &ZooKeeper,
    tracked: &TrackedNode,
    node: &Node,
    children: &[String],
) -> Result<Standing> {
    match Queue::read(children, store.dialect())?.position(&node.name)? {
        None => Ok(Standing::Gone),
        Some(QueuePosition::Held) => {
            tracked.session.note_holder();
            Ok(Standing::Held { token: node.token })
        }
        Some(QueuePosition::Queued { ahead, watched }) => {
            tracked.watches(watched);
            Ok(Standing::Queued { ahead })
        }
    }
}

/// A claim's node, and all children of the lock's node.
pub(super) struct FoundNode {
    tracked: Arc<TrackedNode>,
    node: Node,
    children: Vec<String>,
    /// Whether this call created the node.
    is_new: bool,
}

/// Finds or creates a node whose number may be granted.
///
/// Returns `None` if this claim cannot have such a node. Its id must then not be used again.
pub(super) async fn usable_node(
    store: &ZooKeeper,
    lock_node: LockNode<'_>,
    claim: &Claim,
    on_contention: OnContention,
) -> Result<Option<FoundNode>> {
    let path = lock_node.path;
    loop {
        // A client that knows that a node is exhausted does not use its last numbers.
        let is_exhausted =
            store.exhausted.contains(path) && store.claims.tracked(claim.id).is_none();
        if is_exhausted && !replacement::replace(store, lock_node, on_contention).await? {
            return Ok(None);
        }

        let found = ensure_node(store, lock_node, claim).await?;
        let sequence = store.dialect().member(&found.node.name)?.sequence;
        store.exhausted.warn(path, sequence);
        if !generation::is_exhausted(sequence) {
            return Ok(Some(found));
        }

        store.exhausted.add(path);
        let has_lost_reply = found.tracked.has_lost_reply();
        leave::remove_node(store, claim, Some(found.tracked)).await?;
        // For a while, nodes that late requests create with this id are removed. So the engine
        // draws another id.
        if has_lost_reply {
            return Ok(None);
        }
    }
}

async fn ensure_node(
    store: &ZooKeeper,
    lock_node: LockNode<'_>,
    claim: &Claim,
) -> Result<FoundNode> {
    if let Some(found) = find_node(store, lock_node, claim).await? {
        return Ok(found);
    }

    let session = Arc::clone(lock_node.session);
    let tracked = store.claims.begin(claim.id, session);
    let pending = tracked.pending();
    let (node, children) = lock_node.create(claim).await?;
    pending.replied(node.clone());
    Ok(FoundNode {
        tracked,
        node,
        children,
        is_new: true,
    })
}

/// Finds the node that an earlier call has created in this session.
async fn find_node(
    store: &ZooKeeper,
    lock_node: LockNode<'_>,
    claim: &Claim,
) -> Result<Option<FoundNode>> {
    let Some(tracked) = store.claims.tracked(claim.id) else {
        return Ok(None);
    };
    if tracked.session.id() != lock_node.session.id() {
        return Ok(None);
    }

    let node = match tracked.node_state() {
        NodeState::Exists(node) if !tracked.has_lost_reply() => Some(node),
        NodeState::Exists(_) | NodeState::Pending | NodeState::Unknown => {
            find(lock_node, claim.id).await?
        }
        NodeState::Absent => None,
    };
    let Some(node) = node else {
        return Ok(None);
    };

    tracked.found(node.clone());
    let listed = apply_downgrade(store, lock_node, claim, &tracked, node).await?;
    Ok(listed.map(|(node, children)| FoundNode {
        tracked,
        node,
        children,
        is_new: false,
    }))
}

/// Replaces the node by one with the claim's share if the claim has been downgraded.
///
/// Returns the node and the children, or `None` if the node does not exist.
async fn apply_downgrade(
    store: &ZooKeeper,
    lock_node: LockNode<'_>,
    claim: &Claim,
    tracked: &TrackedNode,
    node: Node,
) -> Result<Option<(Node, Vec<String>)>> {
    let children = lock_node.list().await?;
    if !children.contains(&node.name) {
        return Ok(None);
    }
    let present = store.dialect().member(&node.name)?;
    check_shrinks(claim.share, present.share)?;
    if units(claim.share) == units(present.share) {
        return Ok(Some((node, children)));
    }

    let pending = tracked.pending();
    let smaller = lock_node.shrink(claim, &present, node.token).await?;
    pending.replied(smaller.clone());

    let children = lock_node.list().await?;
    Ok(Some((smaller, children)))
}

/// Reads the standing, and removes the node of a claim that must not wait or is refused.
pub(super) async fn keep_or_leave(
    store: &ZooKeeper,
    claim: &Claim,
    found: FoundNode,
    on_contention: OnContention,
) -> Result<Standing> {
    let standing = match evaluate(store, &found.tracked, &found.node, &found.children) {
        Ok(Standing::Queued { .. }) if on_contention == OnContention::Fail => Ok(Standing::Gone),
        standing => standing,
    };

    let is_refused = standing.is_err() && found.is_new;
    if is_refused || matches!(standing, Ok(Standing::Gone)) {
        leave::remove_node(store, claim, Some(found.tracked)).await?;
    }
    standing
}
