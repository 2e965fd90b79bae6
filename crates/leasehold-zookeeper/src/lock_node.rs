//! The requests about one lock.

use std::sync::Arc;

use futures_util::future::join_all;
use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError, OneshotWatcher, Stat};

use super::address::Address;
use super::claims::Node;
use super::layout::Member;
use super::reply_error::{on_node, store_error, without_panic};
use super::session::Session;
use super::{lock_name, record};
use leasehold_core::store::Claim;
use leasehold_core::{ClaimId, Name, Result, Token};

/// The node of one lock, over one session.
///
/// A session replies to requests in order, and sends each request when it is created. Two requests
/// that are created together take one round trip, and the second sees the effect of the first.
#[derive(Clone, Copy)]
pub(super) struct LockNode<'a> {
    pub(super) session: &'a Arc<Session>,
    pub(super) address: &'a Address,
    pub(super) path: &'a str,
}

/// Returns the path of a lock's node.
pub(super) fn path_of(address: &Address, name: &Name) -> String {
    format!("{}/{}", address.base, lock_name::node_of(name))
}

impl<'a> LockNode<'a> {
    pub(super) fn new(session: &'a Arc<Session>, address: &'a Address, path: &'a str) -> Self {
        Self {
            session,
            address,
            path,
        }
    }

    /// Creates a claim's node at the end of the queue, and lists all nodes, in one round trip.
    pub(super) async fn create(&self, claim: &Claim) -> Result<(Node, Vec<String>)> {
        let prefix = self.address.settings.dialect.prefix(claim);
        let path = self.child(&prefix);
        let data = record::write(claim, None);
        let options = CreateMode::EphemeralSequential.with_acls(self.acls());

        let mut tries = 0;
        loop {
            let creating = without_panic(self.client().create(&path, &data, &options));
            let listing = self.client().list_children(self.path);
            match creating.await {
                Ok((stat, sequence)) => {
                    let name = format!("{prefix}{sequence}");
                    let node = Node {
                        name,
                        token: record::token(None, &stat)?,
                        watched: None,
                    };
                    let children = listing.await.map_err(on_node("read", self.path))?;
                    return Ok((node, children));
                }
                // The folder is missing, or the server has just removed the empty lock node.
                Err(ZkError::NoNode) if tries < CREATES_MAX => self.ensure_parent().await?,
                Err(error) => return Err(on_node("create", self.path)(error)),
            }
            tries += 1;
        }
    }

    /// Creates the lock's node, and the folders above it that are missing.
    ///
    /// The servers check the right to create before they look whether the node exists. So a folder
    /// is created only after the request for its child has shown that it is missing.
    pub(super) async fn ensure_parent(&self) -> Result<()> {
        let mut missing = vec![self.path];
        while let Some(&node) = missing.last() {
            let mode = self.mode_of(node).with_acls(self.acls());
            match without_panic(self.client().create(node, &[], &mode)).await {
                Ok(_) | Err(ZkError::NodeExists) => drop(missing.pop()),
                Err(ZkError::NoNode) if parent(node) != "/" => missing.push(parent(node)),
                Err(error) => return Err(on_node("create", parent(node))(error)),
            }
        }
        Ok(())
    }

    /// Returns the mode of the lock's node, or of a folder above it.
    ///
    /// The servers remove a container node that has been empty for a minute. A kazoo client relies
    /// on the continued existence of a node, so that dialect uses persistent nodes.
    fn mode_of(&self, node: &str) -> CreateMode {
        if node != self.path || self.address.settings.dialect.leaves_nodes() {
            CreateMode::Persistent
        } else {
            CreateMode::Container
        }
    }

    /// Lists the children; empty if the lock's node does not exist.
    pub(super) async fn list(&self) -> Result<Vec<String>> {
        match self.client().list_children(self.path).await {
            Err(ZkError::NoNode) => Ok(Vec::new()),
            children => children.map_err(on_node("read", self.path)),
        }
    }

    pub(super) async fn has_node(&self, node: &str) -> Result<bool> {
        let stat = self.stat(node).await?;
        Ok(stat.is_some())
    }

    /// Deletes a node. Returns whether it existed.
    pub(super) async fn delete(&self, node: &str) -> Result<bool> {
        match self.client().delete(&self.child(node), None).await {
            Ok(()) => Ok(true),
            Err(ZkError::NoNode) => Ok(false),
            Err(error) => Err(on_node("delete", self.path)(error)),
        }
    }

    /// Deletes every node of a claim, in any session. Returns whether there was one.
    pub(super) async fn clear(&self, id: ClaimId) -> Result<bool> {
        self.client().sync("/").await.map_err(store_error)?;
        let children = self.list().await?;

        let mut existed = false;
        for member in self.members(&children) {
            let is_of_claim = match record::foreign_transaction(id) {
                Some(created) => self.is_created(&member, created).await?,
                None => member.id == Some(id),
            };
            if !is_of_claim {
                continue;
            }

            if self.delete(&member.node).await? {
                existed = true;
            } else {
                self.abandon_ghost(&member.node).await?;
            }
        }
        Ok(existed)
    }

    /// Abandons the session if its server still reports a node that cannot be deleted.
    async fn abandon_ghost(&self, node: &str) -> Result<()> {
        let stat = self.stat(node).await?;
        if stat.is_some_and(|stat| stat.ephemeral_owner == self.session.id()) {
            // Leaving does not fail because of this: the node is removed when the client closes the
            // session.
            let _ = self.session.abandon();
        }
        Ok(())
    }

    async fn is_created(&self, member: &Member, created: i64) -> Result<bool> {
        let stat = self.stat(&member.node).await?;
        Ok(stat.is_some_and(|stat| stat.czxid == created))
    }

    /// Replaces a node by one with a smaller share, at the same position and with the same token.
    pub(super) async fn shrink(
        &self,
        claim: &Claim,
        member: &Member,
        token: Token,
    ) -> Result<Node> {
        let prefix = self.address.settings.dialect.prefix(claim);
        let name = format!("{prefix}{:010}", member.sequence);
        let data = record::write(claim, Some(token));
        let options = CreateMode::Ephemeral.with_acls(self.acls());

        let mut writer = self.client().new_multi_writer();
        let created = writer.add_create(&self.child(&name), &data, &options);
        created.map_err(store_error)?;
        let deleted = writer.add_delete(&self.child(&member.node), None);
        deleted.map_err(store_error)?;
        let committed = without_panic(writer.commit()).await;
        committed.map_err(|error| on_node("create and delete", self.path)(error.into()))?;

        Ok(Node {
            name,
            token,
            watched: None,
        })
    }

    /// Watches nodes; returns `None` if one of them does not exist.
    pub(super) async fn watch(&self, nodes: &[String]) -> Result<Option<Vec<OneshotWatcher>>> {
        let paths: Vec<String> = nodes.iter().map(|node| self.child(node)).collect();
        // This request also reads the data: a request for a watch alone would leave a watch even on
        // a missing node.
        let requests = paths
            .iter()
            .map(|path| self.client().get_and_watch_data(path));
        let replies = join_all(requests).await;

        let mut watchers = Vec::with_capacity(replies.len());
        for (path, reply) in paths.iter().zip(replies) {
            match reply {
                Ok((_, _, watcher)) => watchers.push(watcher),
                Err(ZkError::NoNode) => return Ok(None),
                Err(error) => return Err(on_node("read", path)(error)),
            }
        }
        Ok(Some(watchers))
    }

    /// Reads the data of nodes, in order; `None` for a node that does not exist.
    pub(super) async fn read(&self, nodes: &[String]) -> Result<Vec<Option<(Vec<u8>, Stat)>>> {
        let paths: Vec<String> = nodes.iter().map(|node| self.child(node)).collect();
        let requests = paths.iter().map(|path| self.client().get_data(path));
        let replies = join_all(requests).await;

        let read = paths.iter().zip(replies).map(|(path, reply)| match reply {
            Ok(found) => Ok(Some(found)),
            Err(ZkError::NoNode) => Ok(None),
            Err(error) => Err(on_node("read", path)(error)),
        });
        read.collect()
    }

    pub(super) fn client(&self) -> &'a Client {
        &self.session.client
    }

    pub(super) fn child(&self, node: &str) -> String {
        format!("{}/{node}", self.path)
    }

    async fn stat(&self, node: &str) -> Result<Option<Stat>> {
        let path = self.child(node);
        let stat = self.client().check_stat(&path).await;
        stat.map_err(on_node("read", &path))
    }

    pub(super) fn members(&self, children: &[String]) -> impl Iterator<Item = Member> {
        children
            .iter()
            .filter_map(|child| self.address.settings.dialect.read(child))
    }

    pub(super) fn acls(&self) -> Acls<'static> {
        if self.address.settings.private {
            Acls::creator_all()
        } else {
            Acls::anyone_all()
        }
    }
}

/// Returns the node above one.
pub(super) fn parent(node: &str) -> &str {
    match node.rsplit_once('/') {
        None | Some(("", _)) => "/",
        Some((parent, _)) => parent,
    }
}

/// How often one claim creates the lock's node: other clients may remove it again while it is
/// empty.
const CREATES_MAX: u32 = 16;
