//! What is somebody else's, beside the locks: it must stay as it is.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use lab_servers::Redis;
use tokio::runtime::Builder;
use zookeeper_client::{Acls, Client, CreateMode, Error};

use crate::testbed::{Service, Testbed};

/// Names near those of the matrix's locks, and of their own keys.
const KEYS: [&str; 4] = [
    "a:somebody",
    "{a}:somebody",
    "leasehold",
    "leasehold-somebody",
];
const FILE: &str = "somebody.txt";
const NODE: &str = "/somebody";
const TEXT: &str = "somebody's, and nobody else's";
const SESSION: Duration = Duration::from_secs(10);

/// Puts it there.
///
/// # Errors
/// If it cannot be put there.
pub(crate) fn plant(testbed: &Testbed) -> Result<()> {
    match &testbed.service {
        Service::Folder(_) => fs::write(file(testbed), TEXT)?,
        Service::Servers(_) => with_node(testbed, async |client| {
            client
                .create(
                    NODE,
                    TEXT.as_bytes(),
                    &CreateMode::Persistent.with_acls(Acls::anyone_all()),
                )
                .await?;
            Ok(())
        })?,
        Service::Redis(_) | Service::Pair(_) | Service::Masters(_) => {
            for redis in testbed.redis() {
                for key in KEYS {
                    redis.command(&["SET", key, TEXT]);
                }
            }
        }
    }
    Ok(())
}

/// Takes it away again; how much of it was gone, as something that deletes everything takes it too.
///
/// # Errors
/// If it is there and not as it was.
pub(crate) fn verify_and_remove(testbed: &Testbed) -> Result<usize> {
    match &testbed.service {
        Service::Folder(_) => {
            let file = file(testbed);
            if !file.exists() {
                return Ok(1);
            }
            let text = fs::read_to_string(&file)?;
            ensure!(text == TEXT, "somebody's file was written: {text:?}");
            Ok(fs::remove_file(file).map(|()| 0)?)
        }
        Service::Servers(_) => with_node(testbed, async |client| {
            let (data, stat) = match client.get_data(NODE).await {
                Err(Error::NoNode) => return Ok(1),
                found => found?,
            };
            ensure!(
                (&*data, stat.version) == (TEXT.as_bytes(), 0),
                "somebody's node was written: {stat:?}"
            );
            ensure!(
                stat.num_children == 0,
                "somebody's node has children: {stat:?}"
            );
            Ok(client.delete(NODE, None).await.map(|()| 0)?)
        }),
        Service::Redis(_) | Service::Pair(_) | Service::Masters(_) => {
            let gone = testbed
                .redis()
                .into_iter()
                .map(verify_and_remove_keys)
                .collect::<Result<Vec<_>>>()?;
            Ok(gone.into_iter().sum())
        }
    }
}

fn verify_and_remove_keys(redis: &Redis) -> Result<usize> {
    let mut gone = 0;
    for key in KEYS {
        let found = redis.command(&["GET", key]);
        if found.is_nil() {
            gone += 1;
            continue;
        }
        let end = redis.command(&["PTTL", key]).int();
        ensure!(
            found.bytes() == TEXT.as_bytes() && end == -1,
            "somebody's key {key} was written: {found:?}, {end}"
        );
        redis.command(&["DEL", key]);
    }
    Ok(gone)
}

fn file(testbed: &Testbed) -> PathBuf {
    testbed.store().join(FILE)
}

/// Does something with a session of its own.
fn with_node<T>(testbed: &Testbed, work: impl AsyncFnOnce(&Client) -> Result<T>) -> Result<T> {
    let Service::Servers(servers) = &testbed.service else {
        anyhow::bail!("no ZooKeeper here")
    };
    let addresses: Vec<String> = servers
        .each()
        .map(lab_servers::ZooKeeper::address)
        .collect();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let connect = || {
        runtime.block_on(
            Client::connector()
                .with_session_timeout(SESSION)
                .connect(&addresses.join(",")),
        )
    };
    // While servers elect a leader it may take a few tries.
    let client = crate::until("a session", || Ok(connect().ok()))?;
    runtime.block_on(work(&client))
}
