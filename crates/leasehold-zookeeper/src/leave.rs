//! Leaving: the claim's node is removed, even if a request without a reply creates it later.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::address::Address;
use super::claims::{NodeState, TrackedNode};
use super::lock_node::LockNode;
use super::supervisor::SessionSupervisor;
use super::{SESSION_WAIT, ZooKeeper};
use leasehold_core::internal::{BootInstant, background};
use leasehold_core::store::Claim;
use leasehold_core::{ClaimId, Result};

/// Removes a claim's node. Returns whether the node existed.
pub(super) async fn remove_node(
    store: &ZooKeeper,
    claim: &Claim,
    tracked: Option<Arc<TrackedNode>>,
) -> Result<bool> {
    let session = store.supervisor.session(SESSION_WAIT).await?;
    let path = store.path(&claim.name);
    let lock_node = LockNode::new(&session, &store.address, &path);

    // A request whose reply is missing may have made a node that this client does not know, in
    // place of the known one or beside it, or a server may still make one. Then a search by the
    // claim's id finds the former, and the sweep behind it the latter. An error ends this function
    // before the claim is forgotten, so that the next attempt to leave does the same again. For a
    // claim that is not tracked it would search once and not sweep, and a node that is made later
    // would stand in the queue until its session ends.
    let known = tracked.map(|tracked| (tracked.node_state(), tracked.has_lost_reply()));
    let existed = match known {
        Some((NodeState::Exists(node), false)) => lock_node.delete(&node.name).await?,
        Some((NodeState::Absent, false)) => false,
        Some(_) => {
            let existed = lock_node.clear(claim.id).await?;
            let late_node = LateNode {
                supervisor: Arc::downgrade(&store.supervisor),
                address: Arc::clone(&store.address),
                path,
                id: claim.id,
            };
            background::spawn(late_node.sweep(session.timeout() * 2));
            existed
        }
        None => lock_node.clear(claim.id).await?,
    };

    store.claims.end(claim.id);
    Ok(existed)
}

/// A node that a request without a reply may still create: a server may execute the request late.
struct LateNode {
    supervisor: Weak<SessionSupervisor>,
    address: Arc<Address>,
    path: String,
    id: ClaimId,
}

impl LateNode {
    /// Searches for the node repeatedly for `time`, and removes it.
    async fn sweep(self, time: Duration) {
        let until = BootInstant::now().saturating_add(time);
        while BootInstant::now() < until {
            tokio::time::sleep(time / 8).await;
            let supervisor = self.supervisor.upgrade();
            let Some(session) = supervisor.and_then(|supervisor| supervisor.current()) else {
                continue;
            };

            let lock_node = LockNode::new(&session, &self.address, &self.path);
            // After an error the next pass searches again.
            let _ = lock_node.clear(self.id).await;
        }
    }
}
