//! Inspecting a lock, and listing the names in use.

use std::sync::Arc;

use zookeeper_client::Stat;

use super::layout::{Dialect, Member};
use super::lock_node::LockNode;
use super::queue::Queue;
use super::session::Session;
use super::{ZooKeeper, record};
use leasehold_core::store::{Standing, replies};
use leasehold_core::{Entry, Name, Result};

/// Reads all claims of a lock, including those of other libraries.
pub(super) async fn entries(lock_node: LockNode<'_>, dialect: Dialect) -> Result<Vec<Entry>> {
    let children = lock_node.list().await?;
    let queue = Queue::read_known(&children, dialect);
    if queue.members.is_empty() {
        // Claims of another layout hold the lock too.
        Queue::read(&children, dialect)?;
    }
    let members = queue.members.iter();
    let nodes: Vec<String> = members.map(|member| member.node.clone()).collect();

    let read = lock_node.read(&nodes).await?;
    let mut entries = Vec::with_capacity(nodes.len());
    for (at, (member, found)) in queue.members.iter().zip(read).enumerate() {
        let Some((data, stat)) = found else { continue };
        let standing = if at < queue.granted {
            let token = record::token(Some(&data), &stat)?;
            Standing::Held { token }
        } else {
            let ahead = u32::try_from(at).unwrap_or(u32::MAX);
            Standing::Queued { ahead }
        };
        entries.push(entry(dialect, member, standing, &data, &stat));
    }
    Ok(entries)
}

fn entry(dialect: Dialect, member: &Member, standing: Standing, data: &[u8], stat: &Stat) -> Entry {
    if let (Some(record), Some(id)) = (record::read(data), member.id) {
        return replies::entry(id, record.share, standing, record.info);
    }

    let info = record::foreign_info(data, &dialect.to_string(), stat.ctime);
    replies::entry(record::foreign_id(stat), member.share, standing, info)
}

/// Whether a lock has claims.
pub(super) async fn has_claims(
    store: &ZooKeeper,
    session: &Arc<Session>,
    name: &Name,
) -> Result<bool> {
    let path = store.path(name);
    let lock_node = LockNode::new(session, &store.address, &path);
    let children = lock_node.list().await?;
    Ok(children
        .iter()
        .any(|child| store.dialect().read(child).is_some()))
}
