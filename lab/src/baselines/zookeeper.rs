//! The lock recipe of ZooKeeper's documentation, as the client library has it.
//!
//! A client creates an ephemeral sequential node whose name begins with a GUID, and watches the
//! node before it. The recipe's text warns of an expired session, but its code does not check.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error, LockOptions, LockPrefix};

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
    config: BaselineConfig,
    client: Client,
    /// The node of the hold.
    node: Option<String>,
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
        Ok(Self {
            runtime,
            config: config.clone(),
            client,
            node: None,
        })
    }
}

impl Baseline for ZooKeeperRecipe {
    fn begin(&mut self) -> Result<bool> {
        let path = format!("{}/_c_{}-lock-", folder(&self.config), value());
        let create = self.client.create(&path, b"", &NODE);
        self.runtime.block_on(create)?;
        Ok(true)
    }

    fn acquire(&mut self, time_limit: Duration) -> Result<Option<u64>> {
        let granted = self
            .runtime
            .block_on(async { timeout(time_limit, wait(&self.config, &mut self.client)).await });
        self.node = granted.ok();
        Ok(self.node.is_some().then_some(0))
    }

    fn release(&mut self) -> Result<()> {
        let Some(node) = self.node.take() else {
            return Ok(());
        };
        let deleted = self
            .runtime
            .block_on(async { timeout(REPLY_TIMEOUT, self.client.delete(&node, None)).await });
        Ok(deleted.context("the servers did not reply in time")??)
    }
}

/// Retries failed requests, with a new session if the last one has expired.
async fn wait(config: &BaselineConfig, client: &mut Client) -> String {
    loop {
        match lock(config, client).await {
            Ok(node) => return node,
            Err(Error::SessionExpired | Error::ClientClosed) => {
                if let Ok(connected) = connect(config).await {
                    *client = connected;
                }
            }
            Err(_) => {}
        }
        sleep(PAUSE).await;
    }
}

/// Returns the node of the hold. Only a release deletes it.
async fn lock(config: &BaselineConfig, client: &Client) -> Result<String, Error> {
    let folder = folder(config);
    let prefix = LockPrefix::new_curator(&folder, "lock-")?;
    let options = LockOptions::new(Acls::anyone_all());
    let lock = client.lock(prefix, b"", options).await?;
    let node = lock.lock_path().to_owned();
    std::mem::forget(lock);
    Ok(node)
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
