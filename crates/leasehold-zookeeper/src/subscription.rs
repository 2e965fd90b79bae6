//! An observer's subscription: a watch on the children of the lock's node.

use std::sync::Arc;

use async_trait::async_trait;
use zookeeper_client::{Error as ZkError, OneshotWatcher};

use super::address::Address;
use super::lock_node::LockNode;
use super::reply_error::on_node;
use super::supervisor::SessionSupervisor;
use super::{SESSION_WAIT, ZooKeeper};
use leasehold_core::store::{Observe, Subscription};
use leasehold_core::{Error, Name, Result};

#[async_trait]
impl Observe for ZooKeeper {
    async fn subscribe(&self, name: &Name) -> Result<Box<dyn Subscription>> {
        let mut children = WatchedChildren {
            supervisor: Arc::clone(&self.supervisor),
            address: Arc::clone(&self.address),
            path: self.path(name),
            watcher: None,
        };
        children.watcher = Some(children.watch().await?);
        Ok(Box::new(children))
    }
}

/// A watch is used up by one change, so it is set again after each change.
#[derive(Debug)]
struct WatchedChildren {
    supervisor: Arc<SessionSupervisor>,
    address: Arc<Address>,
    path: String,
    /// `None` if it is used up or was dropped, so a change may have been missed.
    watcher: Option<OneshotWatcher>,
}

#[async_trait]
impl Subscription for WatchedChildren {
    async fn changed(&mut self) -> Result<()> {
        if let Some(watcher) = self.watcher.take() {
            watcher.changed().await;
        }
        self.watcher = Some(self.watch().await?);
        Ok(())
    }
}

impl WatchedChildren {
    /// Watches the children of the node, or its creation.
    async fn watch(&self) -> Result<OneshotWatcher> {
        let session = self.supervisor.session(SESSION_WAIT).await?;
        let lock_node = LockNode::new(&session, &self.address, &self.path);

        // Other clients may create and remove the node at any moment.
        for _ in 0..TRIES_MAX {
            match lock_node.client().list_and_watch_children(&self.path).await {
                Err(ZkError::NoNode) => {}
                children => return Ok(children.map_err(on_node("read", &self.path))?.1),
            }
            let checked = lock_node.client().check_and_watch_stat(&self.path).await;
            let (stat, watcher) = checked.map_err(on_node("read", &self.path))?;
            if stat.is_none() {
                return Ok(watcher);
            }
        }
        Err(Error::unavailable(
            "the node of the lock is created and removed repeatedly",
        ))
    }
}

const TRIES_MAX: u32 = 16;
