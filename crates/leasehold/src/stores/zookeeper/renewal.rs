//! Renewing: a claim lasts as long as its session, if its node exists.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;

use super::ZooKeeper;
use super::claims::{NodeState, TrackedNode};
use super::lock_node::LockNode;
use super::search::{search, search_missing};
use super::session::Session;
use crate::runtime::clock::BootInstant;
use crate::{Claim, Result};

/// Returns for each claim how long it certainly lasts from now, or `None` if it is gone.
pub(super) async fn renew(store: &ZooKeeper, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
    let sent_at = BootInstant::now();
    let alive: Vec<_> = claims
        .iter()
        .map(|claim| alive_claim(store, claim))
        .collect();
    let Some(first) = alive.iter().flatten().next() else {
        return Ok(vec![None; claims.len()]);
    };
    let session = &first.session;
    session.confirmed().await;
    session.next_confirmation().await;

    let checks = claims
        .iter()
        .zip(&alive)
        .map(|(claim, tracked)| async move {
            match tracked {
                Some(tracked) if !tracked.session.is_over() => {
                    has_node(store, session, claim, tracked).await
                }
                _ => Ok(false),
            }
        });
    let found = try_join_all(checks).await?;
    let remaining = session.remaining(sent_at)?;
    let renewed = found
        .into_iter()
        .map(|is_there| is_there.then_some(remaining));
    Ok(renewed.collect())
}

/// Returns the local state of a claim whose session is not over.
fn alive_claim(store: &ZooKeeper, claim: &Claim) -> Option<Arc<TrackedNode>> {
    let tracked = store.claims.tracked(claim.id)?;
    (!tracked.session.is_over()).then_some(tracked)
}

/// Returns whether a claim's node exists.
async fn has_node(
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
