//! The connections of a store to one server, what it knows of that server, and the keys of a lock
//! there.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::claims::Claims;
use super::liveness::{self, CrashDetectionMode};
use super::orphans::Orphans;
use crate::client;
use crate::client::{
    ClusterNode, Endpoint, Epochs, Link, LinkConfig, Links, PushHandler, ServerClock, ServerId,
    Settings, StoreServers,
};
use leasehold_core::Result;
use leasehold_core::internal::BootInstant;

/// One server.
///
/// A store on a cluster has a different client id on each server. So the client id in a record
/// identifies the server to which the client is connected.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) endpoint: Endpoint,
    pub(super) links: Links,
    /// The link for `WAIT`, if `replicas` is set. `WAIT` blocks its connection, so nothing else
    /// uses it.
    pub(super) wait_link: Option<Link>,
    pub(super) client: Arc<str>,
    pub(super) clock: Arc<ServerClock>,
}

/// What all servers of a store share.
pub(super) struct StoreContext {
    pub(super) claims: Arc<Claims>,
    pub(super) orphans: Orphans,
    pub(super) crash_detection: Arc<CrashDetectionMode>,
    pub(super) server_id: Arc<ServerId>,
    pub(super) settings: Settings,
    pub(super) runtime: Option<Handle>,
    pub(super) caller_epochs: Epochs,
    pub(super) background_epochs: Epochs,
}

impl Server {
    pub(super) fn connect(endpoint: Endpoint, shared: &StoreContext) -> Self {
        let client: Arc<str> = client::fresh_client().into();
        let clock = Arc::<ServerClock>::default();
        let replicas = shared.settings.replicas;
        let wait_link = (replicas > 0).then(|| wait_link(endpoint.clone(), &client));

        Self {
            links: Links {
                caller: caller_link(endpoint.clone(), &client, shared),
                background: background_link(endpoint.clone(), &client, &clock, shared),
            },
            wait_link,
            client,
            clock,
            endpoint,
        }
    }

    /// Waits until all links have tried to connect.
    pub(super) async fn first(&self) -> Result<()> {
        self.links.first().await?;
        match &self.wait_link {
            Some(wait_link) => wait_link.first().await,
            None => Ok(()),
        }
    }

    /// Closes all connections.
    pub(super) fn close(&self) {
        self.links.reconnect();
        self.wait_link.iter().for_each(Link::reconnect);
    }
}

impl ClusterNode for Server {
    fn link(&self) -> &Link {
        &self.links.background
    }
}

/// The keys of a lock.
///
/// A single server takes the first one, from which the scripts derive the others. A cluster takes
/// all of them. So while it moves their slot, it refuses the whole request unless all of them are
/// on one node, and no script stops halfway.
pub(super) struct LockKeys<'a> {
    key: &'a str,
    others: Option<[String; 3]>,
}

impl<'a> LockKeys<'a> {
    pub(super) fn new(key: &'a str, servers: &StoreServers<Server>) -> Self {
        let others = || ["claims", "queue", "holders"].map(|part| format!("{key}:{part}"));
        Self {
            key,
            others: servers.is_cluster().then(others),
        }
    }

    pub(super) fn texts(&self) -> Vec<&str> {
        let others = self.others.iter().flatten().map(String::as_str);
        std::iter::once(self.key).chain(others).collect()
    }
}

fn background_link(
    endpoint: Endpoint,
    client: &str,
    clock: &Arc<ServerClock>,
    shared: &StoreContext,
) -> Link {
    let alive_channel = format!("leasehold:alive:{client}");
    Link::spawn(LinkConfig {
        handshake: liveness::background_handshake(
            alive_channel.clone(),
            Arc::clone(clock),
            Arc::clone(&shared.crash_detection),
            Arc::clone(&shared.server_id),
            shared.settings,
        ),
        epochs: shared.background_epochs.clone(),
        ..LinkConfig::new(endpoint, alive_channel)
    })
}

fn caller_link(endpoint: Endpoint, client: &str, shared: &StoreContext) -> Link {
    Link::spawn(LinkConfig {
        on_push: apply_pushes(Arc::clone(&shared.claims), shared.orphans.clone()),
        runtime: shared.runtime.clone(),
        epochs: shared.caller_epochs.clone(),
        ..LinkConfig::new(endpoint, format!("leasehold:inbox:{client}"))
    })
}

fn wait_link(endpoint: Endpoint, client: &str) -> Link {
    let channel = format!("leasehold:waiting:{client}");
    Link::spawn(LinkConfig::new(endpoint, channel))
}

/// Applies notifications to their claims, and releases grants whose claim is unknown.
fn apply_pushes(claims: Arc<Claims>, orphans: Orphans) -> PushHandler {
    Arc::new(move |_, text| {
        if let Some(orphan) = claims.pushed(text) {
            orphans.release(orphan, BootInstant::now());
        }
    })
}
