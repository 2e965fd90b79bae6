//! The recipe of ZooKeeper's documentation: an ephemeral sequential node, and a watch on the one before it.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error};

use super::{Specimen, Terms};
use crate::until;

const NODE: CreateOptions<'static> = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
const FOLDER: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());

pub(super) struct Recipe {
    runtime: Runtime,
    client: Client,
    folder: String,
    own: Option<String>,
}

impl Recipe {
    pub(super) fn new(terms: &Terms) -> Result<Self> {
        // A thread of its own keeps the session alive.
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let folder = format!("/recipe-{}", terms.name);
        // While servers elect a leader it may take a few tries.
        let client = until("a session", || Ok(runtime.block_on(connect(terms, &folder)).ok()))?;
        Ok(Self { runtime, client, folder, own: None })
    }

    async fn make_node(&mut self) -> Result<()> {
        let (_, sequence) = self.client.create(&format!("{}/lock-", self.folder), b"", &NODE).await?;
        self.own = Some(format!("lock-{sequence}"));
        Ok(())
    }

    async fn wait(&self) -> Result<()> {
        let own = self.own.as_ref().context("its node was made")?;
        loop {
            let mut nodes = self.client.list_children(&self.folder).await?;
            nodes.sort_unstable();
            let at = nodes.iter().position(|node| node == own).context("its node is gone")?;
            let Some(before) = at.checked_sub(1) else { return Ok(()) };
            let before = format!("{}/{}", self.folder, nodes[before]);
            let (there, watcher) = self.client.check_and_watch_stat(&before).await?;
            if there.is_some() {
                watcher.changed().await;
            }
        }
    }
}

async fn connect(terms: &Terms, folder: &str) -> Result<Client> {
    let client = Client::connector().with_session_timeout(terms.lease()).connect(&terms.place).await?;
    match client.mkdir(folder, &FOLDER).await {
        Ok(()) | Err(Error::NodeExists) => Ok(client),
        Err(error) => Err(error.into()),
    }
}

impl Specimen for Recipe {
    fn begin(&mut self) -> Result<()> {
        let runtime = self.runtime.handle().clone();
        runtime.block_on(self.make_node())
    }

    fn acquire(&mut self, patience: Duration) -> Result<Option<u64>> {
        let runtime = self.runtime.handle().clone();
        let work = async {
            self.make_node().await?;
            self.wait().await
        };
        match runtime.block_on(async { timeout(patience, work).await }) {
            Ok(granted) => granted.map(|()| Some(0)),
            Err(_) => self.release().map(|()| None),
        }
    }

    /// Its author says to look out for a session that has ended, and code of the recipe does not.
    fn holds(&mut self) -> bool {
        true
    }

    fn release(&mut self) -> Result<()> {
        let Some(own) = self.own.take() else { return Ok(()) };
        let deleted = self.client.delete(&format!("{}/{own}", self.folder), None);
        Ok(self.runtime.block_on(async { timeout(Duration::from_secs(3), deleted).await }).context("no answer")??)
    }
}
