//! The lock recipe of ZooKeeper's documentation.
//!
//! A client creates an ephemeral sequential node whose name begins with a GUID, and watches the
//! node before it. The recipe's text warns of an expired session, but its code does not check.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error};

use super::recipe::value;
use super::{Baseline, BaselineConfig};
use crate::until;

const NODE: CreateOptions<'static> = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
const FOLDER: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());

/// How long a release waits for the reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);
/// The pause before the next try after a failed request.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) struct ZooKeeperRecipe {
    runtime: Runtime,
    session: Session,
}

struct Session {
    config: BaselineConfig,
    client: Client,
    folder: String,
    /// The start of the node's name. It identifies the node if the reply to its creation was lost.
    guid: String,
}

impl ZooKeeperRecipe {
    pub(super) fn new(config: &BaselineConfig) -> Result<Self> {
        // A separate thread keeps the session alive.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;

        // While the servers elect a leader, connecting may fail.
        let client = until("a session", || Ok(runtime.block_on(connect(config)).ok()))?;
        let session = Session {
            config: config.clone(),
            client,
            folder: folder(config),
            guid: value(),
        };
        Ok(Self { runtime, session })
    }
}

impl Baseline for ZooKeeperRecipe {
    fn begin(&mut self) -> Result<bool> {
        self.runtime.block_on(self.session.create_node())?;
        Ok(true)
    }

    fn acquire(&mut self, time_limit: Duration) -> Result<Option<u64>> {
        let wait = async { timeout(time_limit, self.session.wait()).await };
        match self.runtime.block_on(wait) {
            Ok(()) => Ok(Some(0)),
            Err(_) => self.release().map(|()| None),
        }
    }

    fn release(&mut self) -> Result<()> {
        let delete = async { timeout(REPLY_TIMEOUT, self.session.delete()).await };
        let deleted = self.runtime.block_on(delete);
        deleted.context("the servers did not reply in time")?
    }
}

impl Session {
    /// Retries failed requests, with a new session if the last one has expired.
    async fn wait(&mut self) {
        while let Err(error) = self.try_once().await {
            let is_over = matches!(error, Error::SessionExpired | Error::ClientClosed);
            if is_over && let Ok(client) = connect(&self.config).await {
                self.client = client;
            }
            sleep(PAUSE).await;
        }
    }

    async fn try_once(&self) -> Result<(), Error> {
        loop {
            let nodes = self.nodes().await?;
            match nodes.iter().position(|node| node.starts_with(&self.guid)) {
                None => self.create_node().await?,
                Some(0) => return Ok(()),
                Some(at) => self.watch(&nodes[at - 1]).await?,
            }
        }
    }

    /// Lists the nodes in the order of the sequence numbers at the ends of their names.
    async fn nodes(&self) -> Result<Vec<String>, Error> {
        let mut nodes = self.client.list_children(&self.folder).await?;
        nodes.sort_unstable_by_key(|node| node.rsplit('-').next().unwrap_or_default().to_owned());
        Ok(nodes)
    }

    async fn create_node(&self) -> Result<(), Error> {
        let path = format!("{}/{}-lock-", self.folder, self.guid);
        self.client.create(&path, b"", &NODE).await.map(drop)
    }

    async fn watch(&self, before: &str) -> Result<(), Error> {
        let path = format!("{}/{before}", self.folder);
        let (there, watcher) = self.client.check_and_watch_stat(&path).await?;
        if there.is_some() {
            watcher.changed().await;
        }
        Ok(())
    }

    async fn delete(&self) -> Result<()> {
        for node in self.nodes().await? {
            if node.starts_with(&self.guid) {
                let path = format!("{}/{node}", self.folder);
                self.client.delete(&path, None).await?;
            }
        }
        Ok(())
    }
}

async fn connect(config: &BaselineConfig) -> Result<Client, Error> {
    let connector = Client::connector().with_session_timeout(config.lease);
    let client = connector.connect(&config.server).await?;
    match client.mkdir(&folder(config), &FOLDER).await {
        Ok(()) | Err(Error::NodeExists) => Ok(client),
        Err(error) => Err(error),
    }
}

fn folder(config: &BaselineConfig) -> String {
    format!("/recipe-{}", config.name)
}
