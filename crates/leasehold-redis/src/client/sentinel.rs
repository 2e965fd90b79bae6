//! The master that sentinels name.
//!
//! The client requests the master from each sentinel when its connection opens, when it publishes
//! `+switch-master`, and once a second. Sentinels may disagree for a while. The master is the one
//! with the highest configuration epoch: a failover raises it, and a majority of the sentinels has
//! agreed to each. A sentinel that has been silent for a minute does not count if the others agree.

pub(super) mod view;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use super::address::Address;
use super::endpoint::{Endpoint, Locate};
use super::link::{Link, LinkConfig};
use super::reply_error;
use super::request::command;
use super::seeds::Sentinels;
use super::session::{Session, connector, with_reply_timeout};
use super::value::Value;
use leasehold_core::internal::background;
use leasehold_core::internal::net::{Connector, Watched, store_closed};
use leasehold_core::{Error, Result};
use view::{Sighting, View};

/// The default port of a sentinel.
pub(crate) const PORT: u16 = 26379;

/// The channel on which a sentinel publishes the end of a failover.
const SWITCHES: &str = "+switch-master";
/// How often the client sends a request to each sentinel, if it publishes nothing.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a sentinel may take to reply.
const REPLY_MAX: Duration = Duration::from_secs(1);

/// Returns the master as an endpoint. The tasks that follow it begin here.
pub(super) fn endpoint(sentinels: Sentinels) -> Endpoint {
    let connector = connector();
    let master = WatchedMaster::follow(sentinels, &connector);
    Endpoint::master(master, connector)
}

/// Follows the master from one server to the next.
#[derive(Debug)]
pub(crate) struct WatchedMaster {
    sentinels: Sentinels,
    view: Watched<View>,
    tasks: Vec<AbortHandle>,
}

impl WatchedMaster {
    /// Starts to ask the sentinels.
    pub(super) fn follow(sentinels: Sentinels, connector: &Connector) -> Self {
        let seeds = sentinels.seeds.iter();
        let view = Watched::new(View::of(seeds.len()));
        let tasks = seeds.enumerate().map(|(number, (_, address))| {
            let sentinel = Arc::new(Sentinel::connect(
                Endpoint::seed(address, connector.clone()),
                sentinels.master.clone(),
            ));
            let view = view.clone();
            background::spawn_restarting(move || {
                ask_repeatedly(Arc::clone(&sentinel), number, view.clone())
            })
        });

        Self {
            tasks: tasks.collect(),
            sentinels,
            view,
        }
    }
}

#[async_trait]
impl Locate for WatchedMaster {
    fn server(&self) -> &Address {
        &self.sentinels.seeds.server
    }

    /// Returns the address of the master.
    ///
    /// # Errors
    /// The error of a sentinel, if none has named a master and all have failed.
    async fn locate(&self) -> Result<Address> {
        let known = self.view.wait_for(|view| match view.master() {
            Some(master) => Some(Ok(self.sentinels.seeds.server_at(master.host.clone()))),
            None => view.has_failed().then(|| Err(view.error())),
        });
        known.await.unwrap_or_else(|_| Err(store_closed()))
    }

    /// Returns when the sentinels name another master than the one at `address`.
    async fn moved_from(&self, address: &Address) {
        let is_other = |view: &View| {
            let master = view.master()?;
            let present = self.sentinels.seeds.server_at(master.host.clone());
            (present.target != address.target).then_some(())
        };
        if self.view.wait_for(is_other).await.is_err() {
            // The store is being closed, and its links with it.
            std::future::pending::<()>().await;
        }
    }
}

/// Writes the URL without user, password and settings.
impl fmt::Display for WatchedMaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sentinels.seeds.fmt(f)
    }
}

impl Drop for WatchedMaster {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        self.view.close();
    }
}

/// A connection to one sentinel.
struct Sentinel {
    link: Link,
    master: String,
    switched: Arc<Notify>,
}

impl Sentinel {
    fn connect(endpoint: Endpoint, master: String) -> Self {
        let switched = Arc::<Notify>::default();
        let notified = Arc::clone(&switched);
        let link = Link::spawn(LinkConfig {
            on_push: Arc::new(move |_, _| notified.notify_one()),
            ..LinkConfig::new(endpoint, SWITCHES.to_owned())
        });
        Self {
            link,
            master,
            switched,
        }
    }

    async fn ask(&self) -> Result<Sighting> {
        self.link.first().await?;
        let session = self.link.session(REPLY_MAX).await?;
        let asking = self.ask_on(&session);
        with_reply_timeout(&session, REPLY_MAX, asking).await
    }

    /// Requests the epoch first, and then the address. A sentinel that leads a failover gives the
    /// new epoch with the old address in the first reply until all replicas follow the new master.
    async fn ask_on(&self, session: &Session) -> Result<Sighting> {
        let configuration = self.request(session, "MASTER").await?;
        let address = self.request(session, "GET-MASTER-ADDR-BY-NAME").await?;
        Sighting::parse(configuration, address).ok_or_else(reply_error::protocol_error)
    }

    async fn request(&self, session: &Session, word: &str) -> Result<Value> {
        let mut request = command("SENTINEL");
        request.arg(word).arg(&self.master);
        let reply = session.send(&request).await;
        reply.map_err(|error| {
            let text = error.to_string();
            if text.contains("No such master") {
                return unknown_master(&self.master);
            }
            if text.contains("unknown command") {
                return no_sentinel();
            }
            reply_error::store_error(error)
        })
    }
}

async fn ask_repeatedly(sentinel: Arc<Sentinel>, number: usize, view: Watched<View>) {
    loop {
        let reply = sentinel.ask().await;
        view.set_if(|view| view.note(number, reply, Instant::now()));
        // A timeout is the regular end of this wait.
        let _ = timeout(ASK_INTERVAL, sentinel.switched.notified()).await;
    }
}

fn no_sentinel() -> Error {
    Error::unsupported("this is a Redis server, not a sentinel").help(format!(
        "give the port of a sentinel, which is {PORT} by default, or write redis://host:6379 for a \
         single server"
    ))
}

fn unknown_master(name: &str) -> Error {
    Error::invalid(format!("the sentinels know no master named {name:?}"))
        .help("write the name that follows `sentinel monitor` in their configuration")
}
