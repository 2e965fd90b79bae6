//! What this client knows of its own claims' nodes.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::session::Session;
use crate::claim::ById;
use crate::{ClaimId, Token};

/// One page for each claim that may have a node.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pages: Mutex<ById<Arc<Page>>>,
}

/// What is known of one claim.
#[derive(Debug)]
pub(super) struct Page {
    /// The session that its node belongs to.
    pub(super) session: Arc<Session>,
    node: Mutex<Known>,
    pub(super) left: Notify,
}

/// Whether a claim has a node.
#[derive(Clone, Debug)]
pub(super) enum Known {
    /// It was asked for, or for another in its place, and the answer has not come.
    Perhaps,
    Yes(Node),
    /// It has left, or was found to be gone.
    No,
}

/// A claim's node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) token: Token,
    /// Whom it waits for, by the last listing that was not yet acted upon.
    pub(super) watched: Option<Vec<String>>,
}

impl Ledger {
    pub(super) fn page(&self, id: ClaimId) -> Option<Arc<Page>> {
        self.pages.lock().get(&id).cloned()
    }

    /// Opens a page for a claim whose node is about to be asked for; the one before it, of another session, is closed.
    pub(super) fn begin(&self, id: ClaimId, session: Arc<Session>) -> Arc<Page> {
        let page = Arc::new(Page { session, node: Mutex::new(Known::Perhaps), left: Notify::new() });
        let before = self.pages.lock().insert(id, Arc::clone(&page));
        if let Some(before) = before {
            before.gone();
        }
        page
    }

    /// Closes a claim's page: it has no node, or none that is known of.
    pub(super) fn end(&self, id: ClaimId) {
        let page = self.pages.lock().remove(&id);
        if let Some(page) = page {
            page.gone();
        }
    }
}

impl Page {
    pub(super) fn known(&self) -> Known {
        self.node.lock().clone()
    }

    pub(super) fn found(&self, node: Node) {
        *self.node.lock() = Known::Yes(node);
    }

    pub(super) fn loses_sight(&self) {
        *self.node.lock() = Known::Perhaps;
    }

    /// Tells who waits for it.
    pub(super) fn gone(&self) {
        *self.node.lock() = Known::No;
        self.left.notify_waiters();
    }

    /// Whom it waits for, once.
    pub(super) fn take_watched(&self) -> Option<Vec<String>> {
        match &mut *self.node.lock() {
            Known::Yes(node) => node.watched.take(),
            Known::Perhaps | Known::No => None,
        }
    }

    pub(super) fn watches(&self, watched: Vec<String>) {
        if let Known::Yes(node) = &mut *self.node.lock() {
            node.watched = Some(watched);
        }
    }
}
