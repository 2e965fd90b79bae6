//! The servers of a store: one, or the masters of a cluster.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::cluster::{Cluster, ClusterNode, Connect};
use super::endpoint::{Endpoint, verify_master};
use super::link::Link;
use super::redirect::Redirect;
use super::script::{Script, Text};
use super::sentinel;
use super::session::Session;
use super::topology::Topology;
use super::value::Value;
use leasehold_core::{Error, Result};

/// The pauses between tries of a request that a cluster cannot execute yet.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// The servers of a store, with the connections to each.
pub(crate) enum StoreServers<S> {
    One(Arc<S>),
    Cluster(Arc<Cluster<S>>),
}

impl<S> fmt::Debug for StoreServers<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One(_) => "One",
            Self::Cluster(_) => "Cluster",
        })
    }
}

/// A request about one key.
#[derive(Clone, Copy)]
pub(crate) struct ServerCall<'a, K, A> {
    pub(crate) script: &'a Script,
    /// The first one decides which server executes the script.
    pub(crate) keys: &'a [K],
    pub(crate) arguments: &'a [A],
}

impl<S: ClusterNode> StoreServers<S> {
    pub(crate) fn new(topology: Topology, connect: Connect<S>) -> Self {
        match topology {
            Topology::Single(address) => Self::One(Arc::new(connect(Endpoint::server(address)))),
            Topology::Sentinel(sentinels) => {
                Self::One(Arc::new(connect(sentinel::endpoint(sentinels))))
            }
            Topology::Cluster(seeds) => Self::Cluster(Arc::new(Cluster::new(seeds, connect))),
        }
    }

    /// Finds the servers of a cluster.
    pub(crate) async fn discover(&self) -> Result<()> {
        match self {
            Self::One(_) => Ok(()),
            Self::Cluster(cluster) => cluster.discover().await,
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Returns the server of a key.
    pub(crate) fn server_of(&self, key: &impl Text) -> Result<Arc<S>> {
        match self {
            Self::One(server) => Ok(Arc::clone(server)),
            Self::Cluster(cluster) => cluster.server_of(&key.to_string()),
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<S>> {
        match self {
            Self::One(server) => vec![Arc::clone(server)],
            Self::Cluster(cluster) => cluster.servers(),
        }
    }

    /// Returns when the server of a key is not `server`.
    pub(crate) async fn moved_from(&self, key: &str, server: &Arc<S>) {
        match self {
            Self::One(_) => std::future::pending().await,
            Self::Cluster(cluster) => cluster.moved_from(key, server).await,
        }
    }

    /// Checks the subscribed connection, and that its server may still decide about locks.
    pub(crate) async fn ping(&self, session: &Session) -> Result<()> {
        if !self.is_cluster() {
            return session.ping().await;
        }
        session.ping().await?;
        // A node that has become a replica keeps its connections.
        let verified = verify_master(session).await;
        if verified.is_err() {
            session.close();
        }
        verified
    }

    /// Runs a script on the server of its first key, over the link that `via` chooses.
    ///
    /// A cluster may refuse a request, because its slot has moved or is being moved. It has
    /// executed nothing then, so the request is sent again until `limit` has passed.
    pub(crate) async fn run(
        &self,
        call: ServerCall<'_, impl Text, impl Text>,
        limit: Duration,
        via: impl Fn(&S) -> &Link,
    ) -> Result<Value> {
        match self {
            Self::One(server) => {
                let session = via(server).session(limit).await?;
                call.script.run(&session, call.keys, call.arguments).await
            }
            // Most users have one server. The box keeps the future of every request small.
            Self::Cluster(cluster) => Box::pin(run_on(cluster, call, limit, via)).await,
        }
    }
}

/// A single server that names another node is no store of this kind. A cluster that does so for the
/// whole time is only not ready yet.
fn still_moving(error: Error) -> Error {
    Error::unavailable("the cluster is moving this lock")
        .help("try again")
        .caused_by(error)
}

async fn run_on<S: ClusterNode>(
    cluster: &Cluster<S>,
    call: ServerCall<'_, impl Text, impl Text>,
    limit: Duration,
    via: impl Fn(&S) -> &Link,
) -> Result<Value> {
    let until = Instant::now() + limit;
    let mut pause = PAUSE_MIN;
    let mut has_moved = false;
    loop {
        let server = cluster.server_of(&call.keys[0].to_string())?;
        let left = until.saturating_duration_since(Instant::now());
        let session = via(&server)
            .session(left)
            .await
            .inspect_err(|_| cluster.refresh())?;
        let reply = call.script.run(&session, call.keys, call.arguments).await;

        let Err(error) = reply else { return reply };
        let Some(redirect) = Redirect::of(&error) else {
            return Err(error);
        };
        if Instant::now() >= until {
            cluster.refresh();
            return Err(still_moving(error));
        }
        match redirect {
            Redirect::Moved(slot, host) => {
                cluster.moved(slot, &cluster.named(host, &server));
                // Two nodes may name each other for a while.
                if !std::mem::replace(&mut has_moved, true) {
                    continue;
                }
            }
            Redirect::Ask(host) => {
                let target = cluster.receiving_server(&cluster.named(host, &server));
                let left = until.saturating_duration_since(Instant::now());
                let session = via(&target).session(left).await?;
                let reply = call.script.ask(&session, call.keys, call.arguments).await;
                if reply.as_ref().err().and_then(Redirect::of).is_none() {
                    return reply;
                }
            }
            Redirect::Later => {}
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
