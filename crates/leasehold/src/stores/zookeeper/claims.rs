//! What this client knows of its own claims' nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::session::Session;
use crate::claim::ById;
use crate::{ClaimId, Token};

/// One page for each claim that may have a node.
#[derive(Debug, Default)]
pub(super) struct Claims {
    by_id: Mutex<ById<Arc<TrackedClaim>>>,
}

/// What is known of one claim.
#[derive(Debug)]
pub(super) struct TrackedClaim {
    /// The session that its node belongs to.
    pub(super) session: Arc<Session>,
    node: Mutex<NodeState>,
    /// Notified at every change of what is known.
    pub(super) updated: Notify,
    /// Whether a request that makes or replaces the node has ended without its reply.
    is_unanswered: AtomicBool,
}

/// Whether a claim has a node.
///
/// ```text
/// Perhaps ──request──► Pending ──reply──► Yes ──request──► Pending
///    ▲                    └─no reply─► Perhaps
///    └── found by its id ──► Yes        any ──left, not found──► No
/// ```
#[derive(Clone, Debug)]
pub(super) enum NodeState {
    /// A request that makes the node or replaces it is under way. Its outcome is known soon.
    Pending,
    /// Such a request ended without its reply: only a search by the claim's id says whether there
    /// is a node.
    Unknown,
    Exists(Node),
    /// It has left, or was found to be gone.
    Absent,
}

/// A claim's node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) token: Token,
    /// Whom it waits for, by the last listing that was not yet acted upon.
    pub(super) watched: Option<Vec<String>>,
}

/// A request under way that makes a claim's node or replaces it. Dropped before its reply, it
/// leaves the node unknown.
#[must_use = "dropping it says that there is no reply"]
#[derive(Debug)]
pub(super) struct Pending<'a> {
    page: &'a TrackedClaim,
}

impl Claims {
    pub(super) fn tracked(&self, id: ClaimId) -> Option<Arc<TrackedClaim>> {
        self.by_id.lock().get(&id).cloned()
    }

    /// Opens a page for a claim whose node is about to be asked for; the one before it is closed.
    pub(super) fn begin(&self, id: ClaimId, session: Arc<Session>) -> Arc<TrackedClaim> {
        let mut pages = self.by_id.lock();
        let before = pages.remove(&id);

        // A request of the page before may still reach the servers, so its node is still searched
        // for.
        let is_unanswered = before.as_ref().is_some_and(|before| before.is_unanswered());
        let tracked = Arc::new(TrackedClaim {
            session,
            node: Mutex::new(NodeState::Unknown),
            updated: Notify::new(),
            is_unanswered: is_unanswered.into(),
        });
        pages.insert(id, Arc::clone(&tracked));
        drop(pages);

        if let Some(before) = before {
            before.gone();
        }
        tracked
    }

    /// Closes a claim's page: it has no node, or none that is known of.
    pub(super) fn end(&self, id: ClaimId) {
        let tracked = self.by_id.lock().remove(&id);
        if let Some(tracked) = tracked {
            tracked.gone();
        }
    }
}

impl TrackedClaim {
    pub(super) fn node_state(&self) -> NodeState {
        self.node.lock().clone()
    }

    /// Whether a node that this client does not know of may exist.
    pub(super) fn is_unanswered(&self) -> bool {
        self.is_unanswered.load(Ordering::Acquire)
    }

    /// Notes that a request is about to make the node or to replace it.
    pub(super) fn pending(&self) -> Pending<'_> {
        *self.node.lock() = NodeState::Pending;
        Pending { page: self }
    }

    pub(super) fn found(&self, node: Node) {
        *self.node.lock() = NodeState::Exists(node);
        self.updated.notify_waiters();
    }

    /// Notes what a search by the claim's id has found, where a node was `missing` or none was
    /// known. Returns whether the claim has a node. A request that was sent meanwhile, or its
    /// reply, counts more than the search.
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

    /// Tells who waits for it.
    pub(super) fn gone(&self) {
        *self.node.lock() = NodeState::Absent;
        self.updated.notify_waiters();
    }

    /// Whom it waits for, once.
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
    /// Notes the node that the reply names.
    pub(super) fn replied(self, node: Node) {
        self.page.found(node);
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let mut node_state = self.page.node.lock();
        if !matches!(*node_state, NodeState::Pending) {
            return;
        }

        *node_state = NodeState::Unknown;
        self.page.is_unanswered.store(true, Ordering::Release);
        drop(node_state);

        self.page.updated.notify_waiters();
    }
}
