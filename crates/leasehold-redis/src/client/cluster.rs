//! The masters of a Redis Cluster, of which each has the keys of some slots.
//!
//! A task requests the slots from a node once a second, and whenever a reply shows that a slot has
//! moved. Such a reply names the new master, and the next request goes there at once.

pub(super) mod slots;
mod table;

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::RwLock;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::address::Address;
use super::endpoint::Endpoint;
use super::link::{Link, LinkConfig, State};
use super::seeds::Seeds;
use super::session::{Session, connector};
use leasehold_core::internal::background;
use leasehold_core::internal::net::{Connector, Host, Watched};
use leasehold_core::{Error, Result};
use slots::Ranges;
use table::Table;

pub(super) use slots::slot_of;

/// How often the slots are requested from a node.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// How long a node may take to reply.
const REPLY_MAX: Duration = Duration::from_secs(5);

/// The connections of a store to one server.
pub(crate) trait ClusterNode: Send + Sync + 'static {
    /// A link that the background thread drives.
    fn link(&self) -> &Link;
}

/// Makes the connections to a server.
pub(crate) type Connect<S> = Box<dyn Fn(Endpoint) -> S + Send + Sync>;

/// The masters of a cluster, with the connections of a store to each.
pub(crate) struct Cluster<S> {
    seeds: Seeds,
    connector: Connector,
    connect: Connect<S>,
    table: RwLock<Table<S>>,
    /// Counts the changes of the table.
    changes: Watched<()>,
    outdated: Notify,
}

impl<S: ClusterNode> Cluster<S> {
    pub(super) fn new(seeds: Seeds, connect: Connect<S>) -> Self {
        Self {
            seeds,
            connector: connector(),
            connect,
            table: RwLock::new(Table::default()),
            changes: Watched::new(()),
            outdated: Notify::new(),
        }
    }

    /// Finds the masters through the hosts of the URL, and begins to follow them.
    pub(super) async fn discover(self: &Arc<Self>) -> Result<()> {
        let links = self.links();
        let asked = join_all(links.iter().map(|(host, link)| async move {
            link.first().await?;
            let session = link.session(REPLY_MAX).await?;
            ranges_of(&session, host).await
        }));

        let mut failures = Vec::new();
        for reply in asked.await {
            match reply {
                Ok(ranges) => self.apply(&ranges),
                Err(error) => failures.push(error),
            }
        }
        if self.table.read().is_empty() {
            let lasting = failures.iter().position(|error| !error.is_unavailable());
            return Err(failures.swap_remove(lasting.unwrap_or(0)));
        }

        let weak = Arc::downgrade(self);
        background::spawn_restarting(move || refresh_repeatedly(weak.clone()));
        Ok(())
    }

    /// Returns the connections to the master of a key.
    pub(super) fn server_of(&self, key: &str) -> Result<Arc<S>> {
        let server = self.table.read().server_of(slot_of(key));
        server.ok_or_else(|| {
            self.outdated.notify_one();
            Error::unavailable("no master of the cluster has this lock")
                .help("check the cluster with `redis-cli --cluster check`")
        })
    }

    /// Returns the connections to the node that announces `host`, and is receiving a slot.
    pub(super) fn receiving_server(&self, host: &Host) -> Arc<S> {
        let mut table = self.table.write();
        table.receiving_server(host, || self.connect_to(host))
    }

    /// Completes an address without a name: it is that of the node that replied with it.
    pub(super) fn named(&self, host: Host, replied: &Arc<S>) -> Host {
        self.table.read().named(host, replied)
    }

    pub(super) fn servers(&self) -> Vec<Arc<S>> {
        self.table.read().servers()
    }

    /// Notes the new master of a slot, as a reply has named it.
    pub(super) fn moved(&self, slot: u16, host: &Host) {
        self.table
            .write()
            .moved(slot, host, || self.connect_to(host));
        self.changes.set(());
        self.outdated.notify_one();
    }

    /// Requests the slots again soon.
    pub(super) fn refresh(&self) {
        self.outdated.notify_one();
    }

    /// Returns when the master of a key is not `server`.
    pub(super) async fn moved_from(&self, key: &str, server: &Arc<S>) {
        let slot = slot_of(key);
        let is_other = || {
            let present = self.table.read().server_of(slot);
            present.is_some_and(|present| !Arc::ptr_eq(&present, server))
        };
        // It is never closed.
        let _ = self.changes.wait_for(|()| is_other().then_some(())).await;
    }

    fn connect_to(&self, announced: &Host) -> S {
        let address = self.seeds.server_at(announced.clone());
        (self.connect)(Endpoint::node(address, self.connector.clone()))
    }

    fn apply(&self, ranges: &Ranges) {
        let is_change = self
            .table
            .write()
            .apply(ranges, Instant::now(), |host| self.connect_to(host));
        if is_change {
            self.changes.set(());
        }
    }

    /// Connects to the hosts of the URL.
    fn links(&self) -> Vec<(Host, Link)> {
        let links = self.seeds.iter().map(|(host, address)| {
            let channel = format!("leasehold:seed:{}", super::request::fresh_client());
            let endpoint = Endpoint::seed(address, self.connector.clone());
            (
                host.clone(),
                Link::spawn(LinkConfig::new(endpoint, channel)),
            )
        });
        links.collect()
    }

    /// Requests the slots from one node after another, until one replies.
    async fn ask(&self, seeds: &[(Host, Link)]) -> Option<Ranges> {
        let mut servers = self.table.read().hosts();
        fastrand::shuffle(&mut servers);
        for (host, server) in &servers {
            if let Some(ranges) = ask_link(server.link(), host).await {
                return Some(ranges);
            }
        }
        for (host, link) in seeds {
            if let Some(ranges) = ask_link(link, host).await {
                return Some(ranges);
            }
        }
        None
    }
}

/// Returns the nodes of the URL, and the masters that one of them names. A node that has two names is
/// returned twice.
pub(super) async fn nodes(seeds: &Seeds) -> Vec<Address> {
    let asked = join_all(seeds.iter().map(|(host, address)| async move {
        let opening = Session::open_unsubscribed(&address);
        let session = timeout(REPLY_MAX, opening).await.ok()?.ok()?;
        ranges_of(&session, host).await.ok()
    }));
    let replies = asked.await;
    let ranges = replies.into_iter().flatten().flat_map(|reply| reply.ranges);

    let mut nodes: Vec<Address> = seeds.iter().map(|(_, address)| address).collect();
    for master in ranges.map(|range| seeds.server_at(range.master)) {
        let is_new = nodes.iter().all(|node| node.target != master.target);
        if is_new {
            nodes.push(master);
        }
    }
    nodes
}

/// Requests the slots until the cluster is dropped.
async fn refresh_repeatedly<S: ClusterNode>(cluster: Weak<Cluster<S>>) {
    // The hosts of the URL are needed only while no master replies.
    let mut seeds = Vec::new();
    loop {
        let Some(cluster) = cluster.upgrade() else {
            return;
        };
        match cluster.ask(&seeds).await {
            Some(ranges) => {
                seeds.clear();
                cluster.apply(&ranges);
            }
            None if seeds.is_empty() => seeds = cluster.links(),
            None => {}
        }

        // A timeout is the regular end of this wait.
        let _ = timeout(REFRESH_INTERVAL, cluster.outdated.notified()).await;
        drop(cluster);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Requests the slots from a node that is connected and sees a whole cluster.
async fn ask_link(link: &Link, host: &Host) -> Option<Ranges> {
    let session = link.with_state(|state| match state {
        State::Up(session, _) if !session.is_closed() => Some(Arc::clone(session)),
        _ => None,
    })?;
    ranges_of(&session, host).await.ok()
}

async fn ranges_of(session: &Session, host: &Host) -> Result<Ranges> {
    // A timeout must not close a connection on which the store renews claims.
    let asking = timeout(REPLY_MAX, slots::ask(session, host)).await;
    asking.unwrap_or_else(|_| Err(Error::unavailable("a node of the cluster does not reply")))
}
