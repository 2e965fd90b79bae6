//! Claims that a late request of this client has left in a queue, without a caller.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::timeout;

use super::claims::Claims;
use super::messages::Push;
use super::record::LockKeys;
use super::scripts;
use super::server::{Server, longest_lease};
use crate::client::{IdText, PushHandler, ServerCall, Settings, StoreServers, id_text};
use leasehold_core::Result;
use leasehold_core::internal::net::store_closed;
use leasehold_core::internal::{BootInstant, background};

/// How often the client tries to release an orphan. After that, the orphan ends with its lease.
const TRIES: u32 = 5;
/// How long each try takes.
const TRY_MAX: Duration = Duration::from_secs(5);

/// Releases orphans on the background link.
#[derive(Clone, Debug)]
pub(super) struct Orphans {
    servers: Weak<StoreServers<Server>>,
    longest_lease: Option<Arc<str>>,
}

/// A claim of this client whose id no caller uses, now or later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Orphan {
    pub(super) key: String,
    pub(super) id: IdText,
}

impl Orphans {
    pub(super) fn new(servers: Weak<StoreServers<Server>>, settings: Settings) -> Self {
        Self {
            servers,
            longest_lease: longest_lease(settings),
        }
    }

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
        let servers = self.servers.upgrade().ok_or_else(store_closed)?;
        let server = servers.server_of(&orphan.key)?;

        let request = format!("H{}", orphan.id);
        let call = ServerCall {
            script: &scripts::LEAVE,
            keys: &LockKeys::new(&*orphan.key, &servers),
            arguments: &leave_arguments(&request, &server.client, self.longest_lease.as_deref()),
        };
        servers
            .run(call, TRY_MAX, |server| &server.links.background)
            .await
            .map(drop)
    }
}

/// Applies notifications to their claims.
///
/// A grant of an unknown claim is an orphan, and is released: no caller will use its id again.
pub(super) fn apply_pushes(claims: Arc<Claims>, orphans: Orphans) -> PushHandler {
    Arc::new(move |_, text| {
        let Some((id, push, key)) = Push::parse(text) else {
            return;
        };
        if let Some(tracked) = claims.tracked(id) {
            tracked.apply_push(&push);
        } else if matches!(push, Push::Held(_)) {
            let orphan = Orphan {
                key: key.to_owned(),
                id: id_text(id),
            };
            orphans.release(orphan, BootInstant::now());
        }
    })
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
