//! Waiting until the standing of a claim changes.

use std::pin::pin;

use futures_util::future::select_all;
use zookeeper_client::OneshotWatcher;

use super::ZooKeeper;
use super::claims::{Node, NodeState, TrackedNode};
use super::enter::evaluate;
use super::lock_node::LockNode;
use super::search::{search, search_missing};
use leasehold_core::store::{Claim, Standing};
use leasehold_core::{ClaimId, Result};

/// Waits until the standing of a claim differs from `seen`, and returns it.
pub(super) async fn wait_for_change(
    store: &ZooKeeper,
    claim: &Claim,
    seen: Standing,
) -> Result<Standing> {
    let path = store.path(&claim.name);
    loop {
        let Some(tracked) = store.claims.tracked(claim.id) else {
            return Ok(Standing::Gone);
        };
        let mut updated = pin!(tracked.updated.notified());
        updated.as_mut().enable();
        if tracked.session.is_over() {
            return Ok(Standing::Gone);
        }

        let pass = WaitPass {
            store,
            lock_node: LockNode::new(&tracked.session, &store.address, &path),
            id: claim.id,
            tracked: &tracked,
            seen,
        };
        let watchers = match pass.step().await? {
            Step::Return(standing) => return Ok(standing),
            Step::Repeat => continue,
            Step::Watch(watchers) => watchers,
        };

        tokio::select! {
            () = any_changed(watchers) => {}
            () = updated => {}
            () = tracked.session.ended() => {}
        }
    }
}

/// One pass of the waiting loop.
struct WaitPass<'a> {
    store: &'a ZooKeeper,
    lock_node: LockNode<'a>,
    id: ClaimId,
    tracked: &'a TrackedNode,
    seen: Standing,
}

/// What the waiting loop does next.
enum Step {
    Return(Standing),
    Repeat,
    /// Waits until one of the watched nodes changes, the client learns something about the claim,
    /// or the session ends. With no watcher only the last two can happen.
    Watch(Vec<OneshotWatcher>),
}

impl WaitPass<'_> {
    async fn step(&self) -> Result<Step> {
        let node = match self.tracked.node_state() {
            NodeState::Exists(node) => node,
            NodeState::Absent => return Ok(Step::Return(Standing::Gone)),
            // The server reports the end of a node that is being replaced before the reply to the
            // replacing request. The claim has a node all the time.
            NodeState::Pending => return Ok(Step::Watch(Vec::new())),
            NodeState::Unknown => {
                search(self.lock_node, self.id, self.tracked, None).await?;
                return Ok(Step::Repeat);
            }
        };

        let watched = match self.seen {
            Standing::Queued { .. } => self.tracked.take_watched(),
            Standing::Held { .. } => Some(vec![node.name.clone()]),
            _ => None,
        };
        match watched {
            Some(watched) => self.watch(&node, &watched).await,
            None => self.compare(&node).await,
        }
    }

    async fn watch(&self, node: &Node, watched: &[String]) -> Result<Step> {
        if let Some(watchers) = self.lock_node.watch(watched).await? {
            return Ok(Step::Watch(watchers));
        }

        if self.seen.token().is_some() {
            search_missing(self.lock_node, self.id, self.tracked, node).await?;
        }
        Ok(Step::Repeat)
    }

    /// Lists the children, and compares the standing with the one seen before.
    async fn compare(&self, node: &Node) -> Result<Step> {
        let children = self.lock_node.list().await?;
        let standing = evaluate(self.store, self.tracked, node, &children)?;
        let is_replaced = standing == Standing::Gone
            && search_missing(self.lock_node, self.id, self.tracked, node).await?;

        if is_replaced || standing == self.seen {
            return Ok(Step::Repeat);
        }
        Ok(Step::Return(standing))
    }
}

/// Waits until one of the watched nodes changes; forever if there is none.
async fn any_changed(watchers: Vec<OneshotWatcher>) {
    if watchers.is_empty() {
        return std::future::pending().await;
    }
    let changes = watchers
        .into_iter()
        .map(|watcher| Box::pin(watcher.changed()));
    select_all(changes).await;
}
