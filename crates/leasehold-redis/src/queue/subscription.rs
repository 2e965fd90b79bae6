//! An observer's subscription: the server pushes a message when a key of the lock changes.
//!
//! It uses the server's broadcast of invalidated keys (`CLIENT TRACKING … BCAST`) on a connection
//! of its own. So the scripts publish nothing for observers, and a lock without an observer costs
//! nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use tokio::sync::Notify;

use super::server::Server;
use crate::client;
use crate::client::{
    DoHandshake, INVALIDATION, Link, LinkConfig, PushHandler, Session, State, StoreServers, Watched,
};
use leasehold_core::Result;
use leasehold_core::internal::net::store_closed;
use leasehold_core::store::Subscription;

/// The keys of one lock, and the connection on which the server that has them reports changes.
#[derive(Debug)]
pub(super) struct TrackedKeys {
    servers: Arc<StoreServers<Server>>,
    key: String,
    server: Arc<Server>,
    /// Dropping it closes the connection.
    _link: Link,
    states: Watched<State>,
    /// The version of the state that was seen last.
    seen: u64,
    pushed: Arc<Notify>,
}

#[async_trait]
impl Subscription for TrackedKeys {
    async fn changed(&mut self) -> Result<()> {
        tokio::select! {
            biased;
            () = self.pushed.notified() => Ok(()),
            // A message may have been lost with the connection.
            version = self.states.changed_from(self.seen) => {
                self.seen = version.map_err(|_| store_closed())?;
                Ok(())
            }
            () = self.servers.moved_from(&self.key, &self.server) => {
                *self = Self::begin(Arc::clone(&self.servers), self.key.clone()).await?;
                Ok(())
            }
        }
    }
}

impl TrackedKeys {
    /// Tracks the keys on the server that has them now.
    pub(super) async fn begin(servers: Arc<StoreServers<Server>>, key: String) -> Result<Self> {
        let server = servers.server_of(&key)?;
        let pushed = Arc::<Notify>::default();
        let channel = format!("leasehold:observer:{}", client::fresh_client());
        let link = Link::spawn(LinkConfig {
            on_push: notify_of_invalidations(Arc::clone(&pushed)),
            handshake: track_keys(key.clone()),
            ..LinkConfig::new(server.endpoint.for_notifications(), channel)
        });
        link.first().await?;

        let states = link.states();
        Ok(Self {
            servers,
            key,
            server,
            _link: link,
            seen: states.version(),
            states,
            pushed,
        })
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
