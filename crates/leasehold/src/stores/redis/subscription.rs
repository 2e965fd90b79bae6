//! An observer's subscription: the server pushes a message when a key of the lock changes.
//!
//! It uses the server's broadcast of invalidated keys (`CLIENT TRACKING … BCAST`) on a connection
//! of its own. So the scripts publish nothing for observers, and a lock without an observer costs
//! nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use tokio::sync::{Notify, watch};

use super::{Redis, record};
use crate::store::{Observe, Subscription};
use crate::stores::redis_client::{
    self, DoHandshake, INVALIDATION, Link, LinkConfig, PushHandler, Session, State,
};
use crate::{Error, Name, Result};

#[async_trait]
impl Observe for Redis {
    async fn subscribe(&self, name: &Name) -> Result<Box<dyn Subscription>> {
        let pushed = Arc::<Notify>::default();
        let link = Link::spawn(LinkConfig {
            address: self.address.clone(),
            channel: format!("leasehold:observer:{}", redis_client::fresh_client()),
            on_push: notify_of_invalidations(Arc::clone(&pushed)),
            handshake: track_keys(record::key_of(name)),
            runtime: None,
        });
        link.first().await?;

        let mut states = link.states();
        states.mark_unchanged();
        Ok(Box::new(TrackedKeys {
            _link: link,
            states,
            pushed,
        }))
    }
}

/// The connection on which the server reports changes of the keys of one lock.
#[derive(Debug)]
struct TrackedKeys {
    /// Dropping it closes the connection.
    _link: Link,
    states: watch::Receiver<State>,
    pushed: Arc<Notify>,
}

#[async_trait]
impl Subscription for TrackedKeys {
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
