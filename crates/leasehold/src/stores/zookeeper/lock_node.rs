//! The requests about one lock.

use std::sync::Arc;

use futures_util::future::join_all;
use zookeeper_client::{
    Acl, Acls, AuthId, Client, CreateMode, Error as ZkError, MultiWriteError, OneshotWatcher,
    Permission, Stat,
};

use super::address::Address;
use super::claims::Node;
use super::layout::Member;
use super::reply_error::store_error;
use super::session::Session;
use super::{generation, lock_name, record};
use crate::{Claim, ClaimId, Name, Result, Token};

/// The node of one lock, over one session.
///
/// A session replies to requests in order, and sends each request when it is created. Two requests
/// that are created together take one round trip, and the second sees the effect of the first.
#[derive(Clone, Copy)]
pub(super) struct LockNode<'a> {
    pub(super) session: &'a Arc<Session>,
    address: &'a Address,
    pub(super) path: &'a str,
}

/// The outcome of removing a lock's node whose numbers are exhausted.
#[derive(Debug)]
pub(super) enum Removal {
    /// The node is gone, or has been replaced already.
    Done,
    /// The node has these children. The watcher reports when they change.
    InUse(Vec<String>, OneshotWatcher),
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
            let creating = self.client().create(&path, &data, &options);
            let listing = self.client().list_children(self.path);
            match creating.await {
                Ok((stat, sequence)) => {
                    let name = format!("{prefix}{sequence}");
                    let node = Node {
                        name,
                        token: record::token(None, &stat)?,
                        watched: None,
                    };
                    return Ok((node, listing.await.map_err(store_error)?));
                }
                // The folder is missing, or the server has just removed the empty lock node.
                Err(ZkError::NoNode) if tries < CREATES_MAX => self.ensure_parent().await?,
                Err(error) => return Err(store_error(error)),
            }
            tries += 1;
        }
    }

    /// Creates the lock's node, and the folder if it is missing.
    ///
    /// The servers remove a container node that has been empty for a minute. kazoo relies on a
    /// node that it has once seen, so its dialect uses persistent nodes.
    async fn ensure_parent(&self) -> Result<()> {
        let acls = self.acls();
        if !self.address.base.is_empty() {
            let folder = CreateMode::Persistent.with_acls(acls);
            self.client()
                .mkdir(&self.address.base, &folder)
                .await
                .map_err(store_error)?;
        }

        let mode = if self.address.settings.dialect.leaves_nodes() {
            CreateMode::Persistent
        } else {
            CreateMode::Container
        };
        let options = mode.with_acls(acls);
        match self.client().create(self.path, &[], &options).await {
            Ok(_) | Err(ZkError::NodeExists) => Ok(()),
            Err(error) => Err(store_error(error)),
        }
    }

    /// Removes the lock's node if its numbers are exhausted and it has no children.
    ///
    /// The next claim creates it again.
    pub(super) async fn remove_exhausted(&self) -> Result<Removal> {
        loop {
            let (acl, stat) = match self.client().get_acl(self.path).await {
                Err(ZkError::NoNode) => return Ok(Removal::Done),
                found => found.map_err(store_error)?,
            };
            if !generation::is_exhausted_node(&stat) {
                return Ok(Removal::Done);
            }
            let is_plain = stat.data_length == 0 && self.is_own_acl(&acl);
            if self.address.settings.dialect.leaves_nodes() || !is_plain {
                return Err(generation::exhausted(self.path));
            }

            match self.client().delete(self.path, Some(stat.version)).await {
                Ok(()) | Err(ZkError::NoNode) => return Ok(Removal::Done),
                Err(ZkError::NotEmpty | ZkError::BadVersion) => {}
                Err(error @ ZkError::NoAuth) => {
                    return Err(generation::exhausted(self.path).caused_by(error));
                }
                Err(error) => return Err(store_error(error)),
            }

            match self.client().list_and_watch_children(self.path).await {
                Ok((children, _)) if children.is_empty() => {}
                Ok((children, watcher)) => return Ok(Removal::InUse(children, watcher)),
                Err(ZkError::NoNode) => return Ok(Removal::Done),
                Err(error) => return Err(store_error(error)),
            }
        }
    }

    /// Lists the children; empty if the lock's node does not exist.
    pub(super) async fn list(&self) -> Result<Vec<String>> {
        match self.client().list_children(self.path).await {
            Err(ZkError::NoNode) => Ok(Vec::new()),
            children => children.map_err(store_error),
        }
    }

    /// Finds the node that a claim has in this session.
    ///
    /// The earlier request may have gone to another server, so a `sync` precedes the listing. A
    /// server that was the leader may keep a node that it alone has written. So a node counts only
    /// after a majority has confirmed it.
    ///
    /// A node that disappears between the listing and its reading may have been replaced by
    /// another node of the same claim, so the children are listed again.
    pub(super) async fn find(&self, id: ClaimId) -> Result<Option<(Member, Node)>> {
        loop {
            let syncing = self.client().sync("/");
            let listing = self.list();
            syncing.await.map_err(store_error)?;

            let mut has_gone = false;
            for member in self
                .members(&listing.await?)
                .filter(|member| member.id == Some(id))
            {
                match self.client().get_data(&self.child(&member.node)).await {
                    // A node of an earlier session, which the servers have not ended yet.
                    Ok((_, stat)) if stat.ephemeral_owner != self.session.id() => {}
                    Ok(_) if !self.is_confirmed(&member.node).await? => has_gone = true,
                    Ok((data, stat)) => {
                        let node = Node {
                            name: member.node.clone(),
                            token: record::token(Some(&data), &stat)?,
                            watched: None,
                        };
                        return Ok(Some((member, node)));
                    }
                    Err(ZkError::NoNode) => has_gone = true,
                    Err(error) => return Err(store_error(error)),
                }
            }

            if !has_gone {
                return Ok(None);
            }
        }
    }

    /// Whether the leader has a node that this server reports; `false` if this server does not
    /// report it any more either.
    ///
    /// The request is a write that changes nothing, which the leader must execute.
    async fn is_confirmed(&self, node: &str) -> Result<bool> {
        let mut writer = self.client().new_multi_writer();
        writer
            .add_check_version(&self.child(node), -1)
            .map_err(store_error)?;
        match writer.commit().await {
            Ok(_) => Ok(true),
            Err(MultiWriteError::OperationFailed {
                source: ZkError::NoNode,
                ..
            }) if self.has_node(node).await? => Err(self.session.abandon()),
            Err(MultiWriteError::OperationFailed {
                source: ZkError::NoNode,
                ..
            }) => Ok(false),
            Err(error) => Err(store_error(error.into())),
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
            Err(error) => Err(store_error(error)),
        }
    }

    /// Deletes every node of a claim, of any session. Returns whether there was one.
    pub(super) async fn clear(&self, id: ClaimId) -> Result<bool> {
        self.client().sync("/").await.map_err(store_error)?;
        let children = self.list().await?;
        let mut existed = false;
        for member in self.members(&children) {
            let is_of_claim = match record::foreign_transaction(id) {
                Some(created) => self.is_created(&member, created).await?,
                None => member.id == Some(id),
            };
            if is_of_claim && !self.delete(&member.node).await? {
                self.abandon_ghost(&member.node).await?;
            } else {
                existed |= is_of_claim;
            }
        }
        Ok(existed)
    }

    /// Abandons the session if its server still reports a node that cannot be deleted.
    async fn abandon_ghost(&self, node: &str) -> Result<()> {
        let stat = self.stat(node).await?;
        if stat.is_some_and(|stat| stat.ephemeral_owner == self.session.id()) {
            // This is not an error of leaving: the node goes when the client closes the session.
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
        writer
            .add_create(&self.child(&name), &data, &options)
            .map_err(store_error)?;
        writer
            .add_delete(&self.child(&member.node), None)
            .map_err(store_error)?;
        writer
            .commit()
            .await
            .map_err(|error| store_error(error.into()))?;
        Ok(Node {
            name,
            token,
            watched: None,
        })
    }

    /// Watches nodes; returns `None` if one of them does not exist.
    pub(super) async fn watch(&self, nodes: &[String]) -> Result<Option<Vec<OneshotWatcher>>> {
        let paths: Vec<String> = nodes.iter().map(|node| self.child(node)).collect();
        // This reads the data too, because a watch without it would also stay on a missing node.
        let requests = paths
            .iter()
            .map(|path| self.client().get_and_watch_data(path));
        let replies = join_all(requests).await;

        let mut watchers = Vec::with_capacity(replies.len());
        for reply in replies {
            match reply {
                Ok((_, _, watcher)) => watchers.push(watcher),
                Err(ZkError::NoNode) => return Ok(None),
                Err(error) => return Err(store_error(error)),
            }
        }
        Ok(Some(watchers))
    }

    /// Reads the data of nodes, in order; `None` for a node that does not exist.
    pub(super) async fn read(&self, nodes: &[String]) -> Result<Vec<Option<(Vec<u8>, Stat)>>> {
        let paths: Vec<String> = nodes.iter().map(|node| self.child(node)).collect();
        let replies = join_all(paths.iter().map(|path| self.client().get_data(path))).await;
        let read = replies.into_iter().map(|reply| match reply {
            Ok(found) => Ok(Some(found)),
            Err(ZkError::NoNode) => Ok(None),
            Err(error) => Err(store_error(error)),
        });
        read.collect()
    }

    fn client(&self) -> &'a Client {
        &self.session.client
    }

    fn child(&self, node: &str) -> String {
        format!("{}/{node}", self.path)
    }

    async fn stat(&self, node: &str) -> Result<Option<Stat>> {
        let stat = self.client().check_stat(&self.child(node)).await;
        stat.map_err(store_error)
    }

    fn members(&self, children: &[String]) -> impl Iterator<Item = Member> {
        children
            .iter()
            .filter_map(|child| self.address.settings.dialect.read(child))
    }

    fn acls(&self) -> Acls<'static> {
        if self.address.settings.private {
            Acls::creator_all()
        } else {
            Acls::anyone_all()
        }
    }

    /// Whether a node created by this client would have this ACL.
    fn is_own_acl(&self, acl: &[Acl]) -> bool {
        let [entry] = acl else { return false };
        let is_anyone = *entry.auth_id() == AuthId::anyone();
        entry.permission() == Permission::ALL && is_anyone != self.address.settings.private
    }
}

/// How often one claim creates the lock's node: other clients may remove it again while it is
/// empty.
const CREATES_MAX: u32 = 16;
