//! An observer's subscription: the server pushes a message when a key of the lock changes.
//!
//! It uses the server's broadcast of invalidated keys (`CLIENT TRACKING … BCAST`) on a connection
//! of its own. So the scripts publish nothing for observers, and a lock without an observer costs
//! nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use tokio::sync::{Notify, watch};

use super::server::Server;
use super::{Redis, record};
use crate::store::{Observe, Subscription};
use crate::stores::redis_client::{
    self, DoHandshake, INVALIDATION, Link, LinkConfig, PushHandler, Session, State, StoreServers,
};
use crate::{Error, Name, Result};

#[async_trait]
impl Observe for Redis {
    async fn subscribe(&self, name: &Name) -> Result<Box<dyn Subscription>> {
        let key = record::key_of(name);
        let server = self.servers.server_of(&key)?;
        let tracking = Tracking::begin(&server, &key).await?;

        Ok(Box::new(TrackedKeys {
            servers: Arc::clone(&self.servers),
            key,
            server,
            tracking,
        }))
    }
}

/// The keys of one lock, on the server that has them now.
#[derive(Debug)]
struct TrackedKeys {
    servers: Arc<StoreServers<Server>>,
    key: String,
    server: Arc<Server>,
    tracking: Tracking,
}

#[async_trait]
impl Subscription for TrackedKeys {
    async fn changed(&mut self) -> Result<()> {
        tokio::select! {
            changed = self.tracking.changed() => changed,
            () = self.servers.moved_from(&self.key, &self.server) => self.follow().await,
        }
    }
}

impl TrackedKeys {
    /// Tracks the keys on the server to which they have moved.
    async fn follow(&mut self) -> Result<()> {
        let server = self.servers.server_of(&self.key)?;
        self.tracking = Tracking::begin(&server, &self.key).await?;
        self.server = server;
        Ok(())
    }
}

/// The connection on which a server reports changes of the keys of one lock.
#[derive(Debug)]
struct Tracking {
    /// Dropping it closes the connection.
    _link: Link,
    states: watch::Receiver<State>,
    pushed: Arc<Notify>,
}

impl Tracking {
    async fn begin(server: &Server, key: &str) -> Result<Self> {
        let pushed = Arc::<Notify>::default();
        let channel = format!("leasehold:observer:{}", redis_client::fresh_client());
        let link = Link::spawn(LinkConfig {
            on_push: notify_of_invalidations(Arc::clone(&pushed)),
            handshake: track_keys(key.to_owned()),
            ..LinkConfig::new(server.endpoint.for_notifications(), channel)
        });
        link.first().await?;

        let mut states = link.states();
        states.mark_unchanged();
        Ok(Self {
            _link: link,
            states,
            pushed,
        })
    }

    async fn changed(&mut self) -> Result<()> {
        tokio::select! {
            () = self.pushed.notified() => Ok(()),
            // A message may have been lost with the connection.
            state = self.states.changed() => {
                state.map_err(|_| Error::unavailable("the store was closed"))
            }
        }
    }
}

fn notify_of_invalidations(pushed: Arc<Notify>) -> PushHandler {
    Arc::new(move |channel, _| {
        if channel == INVALIDATION {
            pushed.notify_one();
        }
    })
}

/// Requests the messages once for each connection: a link repeats its handshake, and the server
/// refuses the same prefix twice.
fn track_keys(key: String) -> DoHandshake {
    let tracked = Arc::<AtomicU32>::default();
    Arc::new(move |session: Arc<Session>| {
        let tracked = Arc::clone(&tracked);
        let key = key.clone();
        Box::pin(async move {
            if tracked.swap(session.epoch, Ordering::AcqRel) != session.epoch {
                session.track_prefix(&key).await?;
            }
            Ok(None)
        })
    })
}
