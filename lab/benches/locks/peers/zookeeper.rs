//! The least that ZooKeeper needs for a lock: an ephemeral sequential node is created and deleted.

use std::time::Duration;

use anyhow::Result;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error};

use super::libraries::Library;

const NODE: CreateOptions<'static> = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
const FOLDER: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());

/// The client sends nothing while the other peers run, because its runtime then stands still.
const SESSION: Duration = Duration::from_secs(600);

pub(super) struct Nodes(Client);

impl Nodes {
    pub(super) async fn connect(url: &str) -> Result<Self> {
        let client = Client::connector()
            .with_session_timeout(SESSION)
            .connect(url.trim_start_matches("zookeeper://"))
            .await?;
        match client.mkdir("/bare", &FOLDER).await {
            Ok(()) | Err(Error::NodeExists) => Ok(Self(client)),
            Err(error) => Err(error.into()),
        }
    }
}

impl Library for Nodes {
    /// The path of the node.
    type Held = String;

    async fn acquire(&self, _: &str) -> Result<String> {
        let (_, sequence) = self.0.create("/bare/n-", b"", &NODE).await?;
        Ok(format!("/bare/n-{sequence}"))
    }

    async fn release(&self, path: String) -> Result<()> {
        Ok(self.0.delete(&path, None).await?)
    }
}
