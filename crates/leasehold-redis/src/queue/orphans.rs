//! Claims that a late request of this client has left in a queue, without a caller.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::timeout;

use super::scripts;
use super::server::{LockKeys, Server};
use crate::client::{ServerCall, StoreServers};
use leasehold_core::internal::{BootInstant, background};
use leasehold_core::{Error, Result};

/// How often the client tries to release an orphan. After that, the orphan ends with its lease.
const TRIES: u32 = 5;
/// How long each try takes.
const TRY_MAX: Duration = Duration::from_secs(5);

/// Releases orphans on the background link.
#[derive(Clone, Debug)]
pub(super) struct Orphans {
    pub(super) servers: Weak<StoreServers<Server>>,
    pub(super) longest_lease: Option<Arc<str>>,
}

/// A claim of this client whose id no caller uses, now or later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Orphan {
    pub(super) key: String,
    pub(super) id: String,
}

impl Orphans {
    /// Removes the claim from the queue at `due`, when no earlier request can add it again.
    pub(super) fn release(&self, orphan: Orphan, due: BootInstant) {
        let orphans = self.clone();
        background::spawn(async move {
            tokio::time::sleep(due.duration_since(BootInstant::now())).await;
            orphans.try_release(&orphan).await;
        });
    }

    async fn try_release(self, orphan: &Orphan) {
        for _ in 0..TRIES {
            match timeout(TRY_MAX, self.leave(orphan)).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => {
                    let key = &orphan.key;
                    tracing::debug!(key, %error, "cannot release an orphaned claim yet");
                }
                Err(_) => tracing::debug!(
                    key = orphan.key,
                    "the release of an orphaned claim had no reply yet"
                ),
            }
            tokio::time::sleep(TRY_MAX / 10).await;
        }

        tracing::warn!(
            key = orphan.key,
            "gave up releasing an orphaned claim; it ends with its lease"
        );
    }

    async fn leave(&self, orphan: &Orphan) -> Result<()> {
        let closed = || Error::unavailable("the store was closed");
        let servers = self.servers.upgrade().ok_or_else(closed)?;
        let server = servers.server_of(&orphan.key)?;

        let whose = format!("H{}", orphan.id);
        let keys = LockKeys::new(&orphan.key, &servers);
        let call = ServerCall {
            script: &scripts::LEAVE,
            keys: &keys.texts(),
            arguments: &leave_arguments(&whose, &server.client, self.longest_lease.as_deref()),
        };
        let left = servers.run(call, TRY_MAX, |server| &server.links.background);
        left.await.map(drop)
    }
}

/// Returns the arguments of the script that leaves.
pub(super) fn leave_arguments<'a>(
    request: &'a str,
    client: &'a str,
    longest_lease: Option<&'a str>,
) -> Vec<&'a str> {
    let mut arguments = vec![request, client];
    arguments.extend(longest_lease);
    arguments
}
