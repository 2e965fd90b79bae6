//! The local state of the nodes of this client's claims.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::session::Session;
use leasehold_core::{ClaimId, Token};

/// One entry for each claim that may have a node.
#[derive(Debug, Default)]
pub(super) struct TrackedNodes {
    by_id: Mutex<HashMap<ClaimId, Arc<TrackedNode>>>,
}

/// The local state of one claim's node.
#[derive(Debug)]
pub(super) struct TrackedNode {
    /// The session of the claim's node.
    pub(super) session: Arc<Session>,
    node: Mutex<NodeState>,
    /// Notified at every change of this state.
    pub(super) updated: Notify,
    /// Whether a request that creates or replaces the node has ended without its reply.
    has_lost_reply: AtomicBool,
}

/// Whether a claim has a node.
///
/// ```text
/// Unknown ──request──► Pending ──reply──► Exists ──request──► Pending
///    ▲                    └─no reply─► Unknown
///    └── found by its id ──► Exists      any ──left, not found──► Absent
/// ```
#[derive(Clone, Debug)]
pub(super) enum NodeState {
    /// A request that creates or replaces the node is under way. Its outcome is known soon.
    Pending,
    /// Such a request ended without its reply. Only a search by the claim's id shows whether there
    /// is a node.
    Unknown,
    Exists(Node),
    /// The claim has left, or its node was not found.
    Absent,
}

/// A claim's node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) token: Token,
    /// The nodes to watch by the last listing, until the waiter takes them.
    pub(super) watched: Option<Vec<String>>,
}

/// A request under way that creates or replaces a claim's node.
///
/// Dropping it before the reply makes the state of the node unknown.
#[must_use = "dropping it means that there is no reply"]
#[derive(Debug)]
pub(super) struct Pending<'a> {
    tracked: &'a TrackedNode,
}

impl TrackedNodes {
    pub(super) fn tracked(&self, id: ClaimId) -> Option<Arc<TrackedNode>> {
        self.by_id.lock().get(&id).cloned()
    }

    /// Adds an entry before the claim's node is requested. An earlier entry of the claim ends.
    pub(super) fn begin(&self, id: ClaimId, session: Arc<Session>) -> Arc<TrackedNode> {
        let mut by_id = self.by_id.lock();
        let earlier = by_id.remove(&id);

        // A request of the earlier entry may still reach the servers, so a search stays necessary.
        let has_lost_reply = earlier
            .as_ref()
            .is_some_and(|earlier| earlier.has_lost_reply());
        let tracked = Arc::new(TrackedNode {
            session,
            node: Mutex::new(NodeState::Unknown),
            updated: Notify::new(),
            has_lost_reply: has_lost_reply.into(),
        });
        by_id.insert(id, Arc::clone(&tracked));
        drop(by_id);

        if let Some(earlier) = earlier {
            earlier.gone();
        }
        tracked
    }

    /// Removes the entry of a claim that has no node.
    pub(super) fn end(&self, id: ClaimId) {
        let tracked = self.by_id.lock().remove(&id);
        if let Some(tracked) = tracked {
            tracked.gone();
        }
    }
}

impl TrackedNode {
    pub(super) fn node_state(&self) -> NodeState {
        self.node.lock().clone()
    }

    /// Whether a node may exist that this client does not know.
    pub(super) fn has_lost_reply(&self) -> bool {
        self.has_lost_reply.load(Ordering::Acquire)
    }

    /// Records that a request is about to create or replace the node.
    pub(super) fn pending(&self) -> Pending<'_> {
        *self.node.lock() = NodeState::Pending;
        Pending { tracked: self }
    }

    pub(super) fn found(&self, node: Node) {
        *self.node.lock() = NodeState::Exists(node);
        self.updated.notify_waiters();
    }

    /// Records the result of a search by the claim's id. Returns whether the claim has a node.
    ///
    /// `missing` is the node whose absence caused the search; `None` if no node was known.
    ///
    /// Other tasks use the same state during the search, so its result may be old. A request that
    /// was sent meanwhile, for a downgrade, replaces the node that was missing, and a reply has
    /// named another node: both are newer than the result, and the claim has a node. `Absent` is
    /// newer too if the claim has left meanwhile: then a node that the search has found is one that
    /// the leave removes, and the claim must not come back to life with it.
    pub(super) fn searched(&self, missing: Option<&Node>, found: Option<Node>) -> bool {
        let mut node_state = self.node.lock();

        let is_newer = match &*node_state {
            NodeState::Pending => true,
            NodeState::Exists(node) => missing.is_none_or(|missing| missing.name != node.name),
            NodeState::Unknown | NodeState::Absent => false,
        };
        if is_newer {
            return true;
        }

        let is_there = found.is_some() && !matches!(*node_state, NodeState::Absent);
        *node_state = found
            .filter(|_| is_there)
            .map_or(NodeState::Absent, NodeState::Exists);
        drop(node_state);

        self.updated.notify_waiters();
        is_there
    }

    /// Records that the claim has no node, and notifies its waiter.
    pub(super) fn gone(&self) {
        *self.node.lock() = NodeState::Absent;
        self.updated.notify_waiters();
    }

    /// Takes the nodes to watch. A later call returns `None` until the next listing.
    pub(super) fn take_watched(&self) -> Option<Vec<String>> {
        match &mut *self.node.lock() {
            NodeState::Exists(node) => node.watched.take(),
            NodeState::Pending | NodeState::Unknown | NodeState::Absent => None,
        }
    }

    pub(super) fn watches(&self, watched: Vec<String>) {
        if let NodeState::Exists(node) = &mut *self.node.lock() {
            node.watched = Some(watched);
        }
    }
}

impl Pending<'_> {
    /// Records the node in the reply.
    pub(super) fn replied(self, node: Node) {
        self.tracked.found(node);
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let mut node_state = self.tracked.node.lock();
        if !matches!(*node_state, NodeState::Pending) {
            return;
        }

        *node_state = NodeState::Unknown;
        self.tracked.has_lost_reply.store(true, Ordering::Release);
        drop(node_state);

        self.tracked.updated.notify_waiters();
    }
}
