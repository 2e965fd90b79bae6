//! Whether a claim still has its node, and searching for that node by the claim's id.

use std::sync::Arc;

use zookeeper_client::{Error as ZkError, MultiWriteError};

use super::ZooKeeper;
use super::claims::{Node, NodeState, TrackedNode};
use super::layout::Member;
use super::lock_node::LockNode;
use super::record;
use super::reply_error::{on_node, store_error, without_panic};
use super::session::Session;
use leasehold_core::store::Claim;
use leasehold_core::{ClaimId, Result};

/// Returns the local state of a claim whose session is not over.
pub(super) fn alive_claim(store: &ZooKeeper, claim: &Claim) -> Option<Arc<TrackedNode>> {
    let tracked = store.claims.tracked(claim.id)?;
    (!tracked.session.is_over()).then_some(tracked)
}

/// Returns whether a claim's node exists.
pub(super) async fn has_node(
    store: &ZooKeeper,
    session: &Arc<Session>,
    claim: &Claim,
    tracked: &TrackedNode,
) -> Result<bool> {
    let path = store.path(&claim.name);
    let lock_node = LockNode::new(session, &store.address, &path);
    let is_there = match tracked.node_state() {
        NodeState::Exists(node) => {
            lock_node.has_node(&node.name).await?
                || search_missing(lock_node, claim.id, tracked, &node).await?
        }
        // The request ends soon, with its reply or without.
        NodeState::Pending => true,
        NodeState::Unknown => search(lock_node, claim.id, tracked, None).await?,
        NodeState::Absent => false,
    };

    // If a request may still reach the servers, the entry stays until the claim leaves.
    if !is_there && !tracked.has_lost_reply() {
        store.claims.end(claim.id);
    }
    Ok(is_there)
}

/// Returns whether a claim has a node. `missing` is the node that does not exist any more.
pub(super) async fn search(
    lock_node: LockNode<'_>,
    id: ClaimId,
    tracked: &TrackedNode,
    missing: Option<&Node>,
) -> Result<bool> {
    let found = find(lock_node, id).await?;
    Ok(tracked.searched(missing, found))
}

/// Returns whether a claim has a node other than the missing one.
///
/// A claim has another node only if the reply to a request was lost. Otherwise no search is
/// needed.
pub(super) async fn search_missing(
    lock_node: LockNode<'_>,
    id: ClaimId,
    tracked: &TrackedNode,
    missing: &Node,
) -> Result<bool> {
    if tracked.has_lost_reply() {
        return search(lock_node, id, tracked, Some(missing)).await;
    }
    Ok(tracked.searched(Some(missing), None))
}

/// Finds the node that a claim has in this session.
///
/// The earlier request may have gone to another server, so a `sync` precedes the listing. A server
/// that was the leader may have a node that no other server has written. So a node counts only
/// after a majority has confirmed it.
///
/// A node that disappears between the listing and its reading may have been replaced by
/// another node of the same claim, so the children are listed again.
pub(super) async fn find(lock_node: LockNode<'_>, id: ClaimId) -> Result<Option<Node>> {
    loop {
        let syncing = lock_node.client().sync("/");
        let listing = lock_node.list();
        syncing.await.map_err(store_error)?;
        let children = listing.await?;

        let mut has_gone = false;
        for member in lock_node.members(&children) {
            if member.id != Some(id) {
                continue;
            }
            match read(lock_node, member).await? {
                Read::Found(node) => return Ok(Some(node)),
                Read::Gone => has_gone = true,
                Read::OfEarlierSession => {}
            }
        }

        if !has_gone {
            return Ok(None);
        }
    }
}

/// The result of reading a node that a listing shows.
enum Read {
    Found(Node),
    Gone,
    /// The node of an earlier session, which the servers have not ended yet.
    OfEarlierSession,
}

async fn read(lock_node: LockNode<'_>, member: Member) -> Result<Read> {
    let path = lock_node.child(&member.node);
    let (data, stat) = match lock_node.client().get_data(&path).await {
        Err(ZkError::NoNode) => return Ok(Read::Gone),
        read => read.map_err(on_node("read", &path))?,
    };
    if stat.ephemeral_owner != lock_node.session.id() {
        return Ok(Read::OfEarlierSession);
    }
    if !is_confirmed(lock_node, &member.node).await? {
        return Ok(Read::Gone);
    }

    let token = record::token(Some(&data), &stat)?;
    Ok(Read::Found(Node {
        name: member.node,
        token,
        watched: None,
    }))
}

/// Whether the leader has a node that this server reports; `false` if this server does not
/// report it any more either.
///
/// The request is a write that changes nothing, which the leader must execute.
async fn is_confirmed(lock_node: LockNode<'_>, node: &str) -> Result<bool> {
    let mut writer = lock_node.client().new_multi_writer();
    let added = writer.add_check_version(&lock_node.child(node), -1);
    added.map_err(store_error)?;

    match without_panic(writer.commit()).await {
        Ok(_) => Ok(true),
        Err(MultiWriteError::OperationFailed {
            source: ZkError::NoNode,
            ..
        }) => {
            if lock_node.has_node(node).await? {
                return Err(lock_node.session.abandon());
            }
            Ok(false)
        }
        Err(error) => Err(on_node("read", &lock_node.child(node))(error.into())),
    }
}
