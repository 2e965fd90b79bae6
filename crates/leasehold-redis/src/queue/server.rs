//! The connections of a store to one server, what it knows of that server, and the handshake that
//! its liveness begins with.

use std::sync::{Arc, OnceLock};

use futures_util::future::{OptionFuture, join_all, join4};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::first::FirstEnter;
use super::record::millis;
use super::scripts;
use super::wait::probe_push_channel;
use crate::client;
use crate::client::{
    ClusterNode, DoHandshake, Endpoint, Epochs, Link, LinkConfig, Links, PushHandler, ServerClock,
    ServerId, Session, Settings, State, StoreServers,
};
use leasehold_core::internal::ProcessFile;
use leasehold_core::internal::net::Watched;
use leasehold_core::{Error, Result};

/// The largest `longest-lease=` of all clients.
const LONGEST_KEY: &str = "leasehold:{history}:longest";

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
    /// Shows the clients of this machine whether this process has ended, with crash detection.
    _process_file: Option<ProcessFile>,
}

/// What all servers of a store share.
pub(super) struct StoreContext {
    /// Receives the notifications on the caller links.
    pub(super) on_push: PushHandler,
    /// Whether holders are checked by their connections. The first handshake decides this once.
    /// Otherwise a missing connection could later revoke a holder that relied only on its lease.
    pub(super) crash_detection: Arc<OnceLock<bool>>,
    pub(super) server_id: Arc<ServerId>,
    pub(super) settings: Settings,
    pub(super) runtime: Option<Handle>,
    /// The claim that the first connection enters.
    pub(super) first: Option<Arc<FirstEnter>>,
    pub(super) caller_epochs: Epochs,
    pub(super) background_epochs: Epochs,
}

impl Server {
    pub(super) fn connect(endpoint: Endpoint, shared: &StoreContext) -> Self {
        let client: Arc<str> = client::fresh_client().into();
        let clock = Arc::<ServerClock>::default();
        let has_grace = shared.settings.crash_grace.is_some();
        let replicas = shared.settings.replicas;
        let wait_link = (replicas > 0).then(|| wait_link(endpoint.clone(), &client));
        let caller = caller_link(endpoint.clone(), &client, shared);
        let callers = caller.states();

        Self {
            links: Links {
                caller,
                background: background_link(endpoint.clone(), &client, &clock, callers, shared),
            },
            wait_link,
            _process_file: has_grace.then(|| ProcessFile::create(&client)).flatten(),
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

/// Waits for the first connections. A cluster may lack some of its masters.
pub(super) async fn first_connections(servers: &StoreServers<Server>) -> Result<()> {
    servers.discover().await?;
    let servers = servers.all();
    let connected = join_all(servers.iter().map(|server| server.first())).await;

    let is_enough = connected.iter().any(Result::is_ok);
    let mut failures = connected.into_iter().filter_map(Result::err);
    match failures.next() {
        Some(error) if !is_enough || !error.is_unavailable() => Err(error),
        _ => Ok(()),
    }
}

fn background_link(
    endpoint: Endpoint,
    client: &Arc<str>,
    clock: &Arc<ServerClock>,
    caller: Watched<State>,
    shared: &StoreContext,
) -> Link {
    let alive_channel = format!("leasehold:alive:{client}");
    let channel = alive_channel.clone();
    let clock = Arc::clone(clock);
    Link::spawn(LinkConfig {
        handshake: background_handshake(client, channel, clock, caller, shared),
        epochs: shared.background_epochs.clone(),
        ..LinkConfig::new(endpoint, alive_channel)
    })
}

fn caller_link(endpoint: Endpoint, client: &str, shared: &StoreContext) -> Link {
    Link::spawn(LinkConfig {
        on_push: Arc::clone(&shared.on_push),
        runtime: shared.runtime.clone(),
        epochs: shared.caller_epochs.clone(),
        ..LinkConfig::new(endpoint, format!("leasehold:inbox:{client}"))
    })
}

fn wait_link(endpoint: Endpoint, client: &str) -> Link {
    let channel = format!("leasehold:waiting:{client}");
    Link::spawn(LinkConfig::new(endpoint, channel))
}

/// Closes all connections after a malformed reply, as no further reply can be trusted.
#[cold]
pub(super) fn protocol_error(servers: &StoreServers<Server>) -> Error {
    for server in servers.all() {
        server.close();
    }
    client::protocol_error()
}

/// Each check reads the id of the server's history, which changes with every change of roles.
/// Every tenth check repeats the full handshake.
const CHECKS_PER_HANDSHAKE: u32 = 10;

/// Counts the checks of one connection.
#[derive(Default)]
struct Checks {
    epoch: u32,
    count: u32,
}

impl Checks {
    /// Returns the number of earlier checks of the connection of `epoch`.
    fn next(&mut self, epoch: u32) -> u32 {
        self.count = if self.epoch == epoch {
            self.count + 1
        } else {
            0
        };
        self.epoch = epoch;
        self.count
    }

    /// Whether this is the first check of a connection that follows another one.
    fn is_reconnect(&self, epoch: u32) -> bool {
        ![0, epoch].contains(&self.epoch)
    }
}

/// The handshake of the background link.
fn background_handshake(
    client: &Arc<str>,
    channel: String,
    clock: Arc<ServerClock>,
    caller: Watched<State>,
    shared: &StoreContext,
) -> DoHandshake {
    let crash_detection = Arc::clone(&shared.crash_detection);
    let server_id = Arc::clone(&shared.server_id);
    let settings = shared.settings;
    let first = shared.first.clone();
    let client = Arc::clone(client);
    let checks = Mutex::<Checks>::default();

    Arc::new(move |session: Arc<Session>| {
        let channel = channel.clone();
        let clock = Arc::clone(&clock);
        let crash_detection = Arc::clone(&crash_detection);
        let server_id = Arc::clone(&server_id);
        let first = first.clone();
        let client = Arc::clone(&client);
        let check = {
            let mut checks = checks.lock();
            if checks.is_reconnect(session.epoch) {
                probe_push_channel(&caller);
            }
            checks.next(session.epoch)
        };

        Box::pin(async move {
            let checking = async {
                let is_on = crash_detection.get() == Some(&true);
                if check.is_multiple_of(CHECKS_PER_HANDSHAKE) || !is_on {
                    client::handshake(&session, &clock).await?;
                }
                Ok(())
            };
            let reading = async {
                match settings.crash_grace {
                    Some(_) => server_id.read(&session, &channel).await,
                    None => Ok(None),
                }
            };

            // All send their requests at once.
            let noting = note_longest_lease(&session, settings);
            let first = first.as_ref();
            let entering = OptionFuture::from(first.map(|it| it.send(&session, &client, &channel)));
            let all = Box::pin(join4(checking, reading, noting, entering));
            let (checked, server, noted, _) = all.await;
            checked?;
            let server = server?;
            noted?;
            crash_detection.get_or_init(|| server.is_some());
            Ok(server)
        })
    })
}

/// Returns the longest lease of the URL as the scripts take it.
pub(super) fn longest_lease(settings: Settings) -> Option<Arc<str>> {
    let longest = settings.failover_wait?;
    Some(millis(longest).to_string().into())
}

/// Notes the longest lease in the store, where all clients find the largest one.
///
/// A full server refuses a new value, and still renews holds. So the connection is used, and the
/// next handshake notes the value.
async fn note_longest_lease(session: &Session, settings: Settings) -> Result<()> {
    let Some(longest) = longest_lease(settings) else {
        return Ok(());
    };
    let noted = scripts::LONGEST_LEASE
        .send_text(session, &[LONGEST_KEY], &[&longest])
        .await;
    match noted {
        Err(error) if error.is_unavailable() => {
            tracing::debug!(%error, "the longest lease is not noted in the store yet");
            Ok(())
        }
        noted => noted.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server behind a new connection may be another one.
    #[test]
    fn every_connection_begins_with_a_full_handshake() {
        let mut checks = Checks::default();
        let mut counts = |epoch| [(); 3].map(|()| checks.next(epoch));

        for epoch in [1, 3, 5] {
            assert_eq!(counts(epoch), [0, 1, 2], "connection {epoch}");
        }
    }
}
