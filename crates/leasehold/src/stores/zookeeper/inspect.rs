//! Inspecting a lock, and listing the names in use.

use std::sync::Arc;

use futures_util::future::join_all;
use zookeeper_client::Stat;

use super::layout::{Dialect, Member};
use super::lock_node::LockNode;
use super::queue::Queue;
use super::session::Session;
use super::{SESSION_WAIT, ZooKeeper, lock_name, record};
use crate::{Entry, LockState, Name, Result, Standing};

/// Reads all claims of a lock, including those of other libraries.
pub(super) async fn inspect(store: &ZooKeeper, name: &Name) -> Result<LockState> {
    let session = store.supervisor.session(SESSION_WAIT).await?;
    let path = store.path(name);
    let lock_node = LockNode::new(&session, &store.address, &path);

    let queue = Queue::read_known(&lock_node.list().await?, store.dialect());
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
        entries.push(entry(store.dialect(), member, standing, &data, &stat));
    }

    Ok(LockState {
        name: name.clone(),
        last_token: entries.iter().filter_map(Entry::token).max(),
        entries,
        external_holders: Vec::new(),
        servers: Vec::new(),
    })
}

/// Lists the names that have claims and start with `prefix`, in order.
pub(super) async fn list(store: &ZooKeeper, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
    let session = store.supervisor.session(SESSION_WAIT).await?;
    let folder = store.address.folder();
    let nodes = LockNode::new(&session, &store.address, folder)
        .list()
        .await?;

    let all = nodes.iter().filter_map(|node| lock_name::name_of(node));
    let mut names: Vec<Name> = all
        .filter(|name| name.as_str().starts_with(prefix))
        .collect();
    names.sort_unstable();

    let mut in_use = Vec::new();
    for names in names.chunks(LISTED_AT_A_TIME) {
        let checks = names.iter().map(|name| has_claims(store, &session, name));
        for (name, is_used) in names.iter().zip(join_all(checks).await) {
            if is_used? {
                in_use.push(name.clone());
            }
        }
        if in_use.len() >= count_max {
            break;
        }
    }
    in_use.truncate(count_max);
    Ok(in_use)
}

fn entry(dialect: Dialect, member: &Member, standing: Standing, data: &[u8], stat: &Stat) -> Entry {
    if let (Some(record), Some(id)) = (record::read(data), member.id) {
        return Entry {
            lease_left: None,
            id,
            share: record.share,
            standing,
            reserved: 0,
            info: record.info,
        };
    }

    Entry {
        lease_left: None,
        id: record::foreign_id(stat),
        share: member.share,
        standing,
        reserved: 0,
        info: record::foreign_info(data, &dialect.to_string(), stat.ctime),
    }
}

async fn has_claims(store: &ZooKeeper, session: &Arc<Session>, name: &Name) -> Result<bool> {
    let path = store.path(name);
    let lock_node = LockNode::new(session, &store.address, &path);
    let children = lock_node.list().await?;
    Ok(children
        .iter()
        .any(|child| store.dialect().read(child).is_some()))
}

/// How many locks are listed in one round trip.
const LISTED_AT_A_TIME: usize = 64;
