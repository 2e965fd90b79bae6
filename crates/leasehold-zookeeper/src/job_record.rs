//! The record of a name: which jobs were completed under it.
//!
//! It is the persistent node `FOLDER/%records/NAME`. A child of the lock's node would be no claim,
//! and would keep the servers from removing the container. No lock has the node `%records`, because
//! `%` is encoded in the name of a lock's node.
//!
//! All times are the leader's. Each read first writes to `%records`, whose `mtime` is then the
//! present time. A session replies in order, so the read that follows is not older than that write.
//! The `mtime` of a record is its last use. An observer without the right to write uses its own
//! clock, because it only shows the times.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::try_join;
use zookeeper_client::{CreateMode, Error as ZkError, MultiWriteError, Stat};

use super::address::Address;
use super::lock_name;
use super::lock_node::LockNode;
use super::queue::{Queue, QueuePosition};
use super::reply_error::{on_node, store_error, without_panic};
use super::session::Session;
use leasehold_core::store::{Claim, RecordReader};
use leasehold_core::{Completion, Name, Record, Result};

/// The node above all records, over one session.
#[derive(Clone, Copy)]
pub(super) struct RecordFolder<'a> {
    node: LockNode<'a>,
}

/// A record as it was read.
pub(super) struct FoundRecord {
    pub(super) record: Record,
    /// The version of its node; `None` if it has no node.
    version: Option<i32>,
}

impl<'a> RecordFolder<'a> {
    pub(super) fn new(session: &'a Arc<Session>, address: &'a Address) -> Self {
        let node = LockNode::new(session, address, &address.record_folder);
        Self { node }
    }

    /// Reads a record; `None` if there is no folder yet.
    pub(super) async fn find(
        &self,
        name: &Name,
        reader: RecordReader,
    ) -> Result<Option<FoundRecord>> {
        let path = self.path(name);
        let writing = self.node.client().set_data(self.node.path, &[], None);
        let reading = self.node.client().get_data(&path);
        let now = match writing.await {
            Err(ZkError::NoNode) => return Ok(None),
            Err(ZkError::NoAuth) if reader == RecordReader::Observer => SystemTime::now(),
            written => mtime(&written.map_err(on_node("write", self.node.path))?),
        };

        let (data, stat) = match reading.await {
            Ok(read) => read,
            Err(ZkError::NoNode) => {
                return Ok(Some(FoundRecord {
                    record: Record::empty(now),
                    version: None,
                }));
            }
            Err(error) => return Err(on_node("read", &path)(error)),
        };
        let record = if is_older(&stat, now, self.kept()) {
            Record::empty(now)
        } else {
            // Bytes that are no text are no record either, and parsing the empty text says so.
            Record::parse(std::str::from_utf8(&data).unwrap_or_default(), now)?
        };
        Ok(Some(FoundRecord {
            record,
            version: Some(stat.version),
        }))
    }

    /// Reads a record. Creates the folder, so that the times of a first job are the leader's too.
    pub(super) async fn read(&self, name: &Name) -> Result<FoundRecord> {
        loop {
            match self.find(name, RecordReader::Holder).await? {
                Some(found) => return Ok(found),
                None => self.node.ensure_parent().await?,
            }
        }
    }

    /// Keeps a record for its full time from now on.
    pub(super) async fn keep(&self, name: &Name, found: &FoundRecord) -> Result<()> {
        let record = &found.record;
        // A record that is too old was read as empty. Its node may be removed meanwhile, and another
        // client may create one with the same version, which must not be overwritten.
        if record.completions.is_empty() && record.failure.is_none() {
            return Ok(());
        }
        let path = self.path(name);
        let text = record.to_text();
        let client = self.node.client();
        match client.set_data(&path, text.as_bytes(), found.version).await {
            // Another client has used or removed it meanwhile.
            Ok(_) | Err(ZkError::BadVersion | ZkError::NoNode) => Ok(()),
            Err(error) => Err(on_node("write", &path)(error)),
        }
    }

    /// Adds a completion to the record and removes the claim, if the claim holds. Returns whether it
    /// is recorded, by this call or an earlier one.
    pub(super) async fn complete(
        &self,
        lock_node: LockNode<'_>,
        claim: &Claim,
        completion: &Completion,
    ) -> Result<bool> {
        loop {
            // In this order: if an earlier request has removed the node, its record is found.
            let (children, found) = try_join(lock_node.list(), self.read(&claim.name)).await?;
            let Some(held) = held_node(lock_node, claim, &children)? else {
                return Ok(found.record.is_of(claim.id));
            };
            let writing = self.write(lock_node, &held, claim, found, completion);
            if writing.await? {
                return Ok(true);
            }
        }
    }

    /// Writes the record and removes the claim's node, in one transaction. Returns `false` if either
    /// was written or removed since it was read, by another client, or by a request without a reply.
    async fn write(
        &self,
        lock_node: LockNode<'_>,
        held: &str,
        claim: &Claim,
        found: FoundRecord,
        completion: &Completion,
    ) -> Result<bool> {
        let path = self.path(&claim.name);
        let mut record = found.record;
        record.add(completion);
        let text = record.to_text();

        let mut writer = self.node.client().new_multi_writer();
        let deleted = writer.add_delete(&lock_node.child(held), None);
        deleted.map_err(store_error)?;
        let options = CreateMode::Persistent.with_acls(self.node.acls());
        let written = match found.version {
            Some(_) => writer.add_set_data(&path, text.as_bytes(), found.version),
            // A client that saw the node before it was removed must not remove the new one.
            None => writer
                .add_create(&path, text.as_bytes(), &options)
                .and_then(|()| writer.add_set_data(self.node.path, &[], None)),
        };
        written.map_err(store_error)?;

        match without_panic(writer.commit()).await {
            Ok(_) => Ok(true),
            Err(MultiWriteError::OperationFailed {
                source: ZkError::NoNode | ZkError::NodeExists | ZkError::BadVersion,
                ..
            }) => Ok(false),
            Err(error) => Err(on_node("write", &path)(error.into())),
        }
    }

    /// Returns the names with records, sorted.
    pub(super) async fn names(&self) -> Result<Vec<Name>> {
        let nodes = self.node.list().await?;
        let mut names: Vec<Name> = nodes
            .iter()
            .filter_map(|node| lock_name::name_of(node))
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Removes a record whose last use is longer ago than it is kept. Returns whether it was removed.
    ///
    /// Another client may remove the node after the look, and a job may create it again, with the
    /// same version. Each creation writes to the folder, whose version is checked with the removal.
    pub(super) async fn remove_old(&self, name: &Name) -> Result<bool> {
        let path = self.path(name);
        let client = self.node.client();
        for _ in 0..REMOVALS_MAX {
            let writing = client.set_data(self.node.path, &[], None);
            let reading = client.check_stat(&path);
            let folder = writing.await.map_err(on_node("write", self.node.path))?;
            let Some(stat) = reading.await.map_err(on_node("read", &path))? else {
                return Ok(false);
            };
            if !is_older(&stat, mtime(&folder), self.kept()) {
                return Ok(false);
            }

            let mut writer = client.new_multi_writer();
            let checked = writer.add_check_version(self.node.path, folder.version);
            checked.map_err(store_error)?;
            let deleted = writer.add_delete(&path, Some(stat.version));
            deleted.map_err(store_error)?;
            match without_panic(writer.commit()).await {
                Ok(_) => return Ok(true),
                // Another client has used a record meanwhile, maybe this one.
                Err(MultiWriteError::OperationFailed {
                    source: ZkError::NoNode | ZkError::BadVersion,
                    ..
                }) => {}
                Err(error) => return Err(on_node("delete", &path)(error.into())),
            }
        }
        Ok(false)
    }

    fn kept(&self) -> Duration {
        self.node.address.settings.records
    }

    fn path(&self, name: &Name) -> String {
        self.node.child(&lock_name::node_of(name))
    }
}

/// Returns the node of a claim that holds by this listing.
///
/// It holds as long as the node exists, because no claim can enter the queue before it.
fn held_node(
    lock_node: LockNode<'_>,
    claim: &Claim,
    children: &[String],
) -> Result<Option<String>> {
    let mut members = lock_node.members(children);
    let Some(own) = members.find(|member| member.id == Some(claim.id)) else {
        return Ok(None);
    };
    let queue = Queue::read(children, lock_node.address.settings.dialect)?;
    let holds = matches!(queue.position(&own.node)?, Some(QueuePosition::Held));
    Ok(holds.then_some(own.node))
}

fn is_older(stat: &Stat, now: SystemTime, kept: Duration) -> bool {
    let age = now.duration_since(mtime(stat));
    age.unwrap_or_default() > kept
}

fn mtime(stat: &Stat) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(stat.mtime.try_into().unwrap_or(0))
}

/// How often a removal is tried while other clients use records, each of which fails it. The next
/// one removes what is left.
const REMOVALS_MAX: usize = 16;
