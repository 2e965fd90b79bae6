//! What is asked of the servers about one lock.

use futures_util::future::join_all;
use zookeeper_client::{
    Acl, Acls, AuthId, Client, CreateMode, Error as ZkError, MultiWriteError, OneshotWatcher,
    Permission, Stat,
};

use super::address::Address;
use super::claims::Node;
use super::generation;
use super::layout::{self, Member};
use super::record;
use super::reply_error;
use super::session::Session;
use crate::{Claim, ClaimId, Error, Name, Result, Token};

/// The node of one lock, over one session.
///
/// Requests of one session are answered in order, and are sent as soon as they are made: two that are made together take one
/// round trip, and the second sees what the first did.
#[derive(Clone, Copy)]
pub(super) struct LockNode<'a> {
    session: &'a Session,
    address: &'a Address,
    path: &'a str,
}

/// Times that a missing lock's node is made for one claim: other clients may remove it again while
/// it is empty.
const CREATES_MAX: u32 = 16;

/// The path of a lock's node.
pub(super) fn path_of(address: &Address, name: &Name) -> String {
    format!("{}/{}", address.base, layout::node_of(name))
}

/// The outcome of removing a lock's node whose numbers are used up.
#[derive(Debug)]
pub(super) enum Removal {
    /// It is gone, or is a new one already.
    Done,
    /// It has these children; the watcher reports when they change.
    InUse(Vec<String>, OneshotWatcher),
}

pub(super) fn acls(address: &Address) -> Acls<'static> {
    if address.settings.private {
        Acls::creator_all()
    } else {
        Acls::anyone_all()
    }
}

impl<'a> LockNode<'a> {
    pub(super) fn new(session: &'a Session, address: &'a Address, path: &'a str) -> Self {
        Self {
            session,
            address,
            path,
        }
    }

    fn client(&self) -> &'a Client {
        &self.session.client
    }

    fn child(&self, node: &str) -> String {
        format!("{}/{node}", self.path)
    }

    /// Puts a claim's node at the end of the line, and lists all: one round trip.
    pub(super) async fn create(&self, claim: &Claim) -> Result<(Node, Vec<String>)> {
        let prefix = self.address.settings.dialect.prefix(claim);
        let (path, data) = (self.child(&prefix), record::write(claim, None));
        let options = CreateMode::EphemeralSequential.with_acls(acls(self.address));
        let mut tries = 0;
        loop {
            let creating = self.client().create(&path, &data, &options);
            let listing = self.client().list_children(self.path);
            match creating.await {
                Ok((stat, sequence)) => {
                    let name = format!("{prefix}{sequence}");
                    let node = Node {
                        name,
                        token: token(None, &stat)?,
                        watched: None,
                    };
                    return Ok((node, listing.await.map_err(reply_error::store_error)?));
                }
                // The folder is missing, or the server has just cleared away a node that nobody was in line at.
                Err(ZkError::NoNode) if tries < CREATES_MAX => self.ensure_parent().await?,
                Err(error) => return Err(reply_error::store_error(error)),
            }
            tries += 1;
        }
    }

    /// Makes the lock's node, and the folder if need be. A container goes by itself when it is empty for a minute; but kazoo
    /// counts on a node that it has once seen.
    async fn ensure_parent(&self) -> Result<()> {
        let acls = acls(self.address);
        if !self.address.base.is_empty() {
            let folder = CreateMode::Persistent.with_acls(acls);
            self.client()
                .mkdir(&self.address.base, &folder)
                .await
                .map_err(reply_error::store_error)?;
        }
        let mode = if self.address.settings.dialect.leaves_nodes() {
            CreateMode::Persistent
        } else {
            CreateMode::Container
        };
        match self
            .client()
            .create(self.path, &[], &mode.with_acls(acls))
            .await
        {
            Ok(_) | Err(ZkError::NodeExists) => Ok(()),
            Err(error) => Err(reply_error::store_error(error)),
        }
    }

    /// Removes the lock's node if its numbers are used up and it has no children. The next claim
    /// makes it again.
    pub(super) async fn remove_worn_out(&self) -> Result<Removal> {
        loop {
            let (acl, stat) = match self.client().get_acl(self.path).await {
                Err(ZkError::NoNode) => return Ok(Removal::Done),
                found => found.map_err(reply_error::store_error)?,
            };
            if !generation::is_worn_out_node(&stat) {
                return Ok(Removal::Done);
            }
            let is_plain = stat.data_length == 0 && self.is_our_acl(&acl);
            if self.address.settings.dialect.leaves_nodes() || !is_plain {
                return Err(generation::worn_out(self.path));
            }

            match self.client().delete(self.path, Some(stat.version)).await {
                Ok(()) | Err(ZkError::NoNode) => return Ok(Removal::Done),
                Err(ZkError::NotEmpty | ZkError::BadVersion) => {}
                Err(error @ ZkError::NoAuth) => {
                    return Err(generation::worn_out(self.path).caused_by(error));
                }
                Err(error) => return Err(reply_error::store_error(error)),
            }

            match self.client().list_and_watch_children(self.path).await {
                Ok((children, _)) if children.is_empty() => {}
                Ok((children, watcher)) => return Ok(Removal::InUse(children, watcher)),
                Err(ZkError::NoNode) => return Ok(Removal::Done),
                Err(error) => return Err(reply_error::store_error(error)),
            }
        }
    }

    /// Whether the node would get this ACL again.
    fn is_our_acl(&self, acl: &[Acl]) -> bool {
        let [entry] = acl else { return false };
        let is_anyone = *entry.auth_id() == AuthId::anyone();
        entry.permission() == Permission::ALL && is_anyone != self.address.settings.private
    }

    /// The children; none if nobody ever was in line.
    pub(super) async fn list(&self) -> Result<Vec<String>> {
        match self.client().list_children(self.path).await {
            Err(ZkError::NoNode) => Ok(Vec::new()),
            children => children.map_err(reply_error::store_error),
        }
    }

    /// A claim's node, if it has one in this session. What other servers know is waited for, as the
    /// one that was asked before may have been another; and what this one shows is not believed
    /// until a majority has confirmed it, as a server that led may keep what it alone has written.
    ///
    /// A node that goes between the listing and its reading may have been replaced by another of
    /// the same claim, so the children are listed again.
    pub(super) async fn find(&self, id: ClaimId) -> Result<Option<(Member, Node)>> {
        loop {
            let syncing = self.client().sync("/");
            let listing = self.list();
            syncing.await.map_err(reply_error::store_error)?;

            let mut has_gone = false;
            for member in self
                .members(&listing.await?)
                .filter(|member| member.id == Some(id))
            {
                match self.client().get_data(&self.child(&member.node)).await {
                    // Of an earlier session of ours, which the servers have not ended yet.
                    Ok((_, stat)) if stat.ephemeral_owner != self.session.id() => {}
                    Ok(_) if !self.is_confirmed(&member.node).await? => has_gone = true,
                    Ok((data, stat)) => {
                        let node = Node {
                            name: member.node.clone(),
                            token: token(Some(&data), &stat)?,
                            watched: None,
                        };
                        return Ok(Some((member, node)));
                    }
                    Err(ZkError::NoNode) => has_gone = true,
                    Err(error) => return Err(reply_error::store_error(error)),
                }
            }

            if !has_gone {
                return Ok(None);
            }
        }
    }

    /// Whether the leader has a node that this server shows, asked by a write that changes nothing;
    /// `false` if the node has gone here too.
    async fn is_confirmed(&self, node: &str) -> Result<bool> {
        let mut writer = self.client().new_multi_writer();
        writer
            .add_check_version(&self.child(node), -1)
            .map_err(reply_error::store_error)?;
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
            Err(error) => Err(reply_error::store_error(error.into())),
        }
    }

    fn members(&self, children: &[String]) -> impl Iterator<Item = Member> {
        children
            .iter()
            .filter_map(|child| self.address.settings.dialect.read(child))
    }

    pub(super) async fn has_node(&self, node: &str) -> Result<bool> {
        let stat = self
            .client()
            .check_stat(&self.child(node))
            .await
            .map_err(reply_error::store_error)?;
        Ok(stat.is_some())
    }

    /// Whether it was there.
    pub(super) async fn delete(&self, node: &str) -> Result<bool> {
        match self.client().delete(&self.child(node), None).await {
            Ok(()) => Ok(true),
            Err(ZkError::NoNode) => Ok(false),
            Err(error) => Err(reply_error::store_error(error)),
        }
    }

    /// Takes away whatever node a claim has, of any session; whether there was one.
    pub(super) async fn clear(&self, id: ClaimId) -> Result<bool> {
        self.client()
            .sync("/")
            .await
            .map_err(reply_error::store_error)?;
        let children = self.list().await?;
        let mut there = false;
        for member in self.members(&children) {
            let is_meant = match foreign_info(id) {
                Some(created) => self.is_created(&member, created).await?,
                None => member.id == Some(id),
            };
            if is_meant && !self.delete(&member.node).await? {
                self.forget(&member.node).await?;
            } else {
                there |= is_meant;
            }
        }
        Ok(there)
    }

    /// What cannot be deleted and is shown all the same goes with its session.
    async fn forget(&self, node: &str) -> Result<()> {
        let stat = self
            .client()
            .check_stat(&self.child(node))
            .await
            .map_err(reply_error::store_error)?;
        if stat.is_some_and(|stat| stat.ephemeral_owner == self.session.id()) {
            // Leaving has not failed for it: the node goes when the last of the session's claims has heard.
            let _ = self.session.abandon();
        }
        Ok(())
    }

    async fn is_created(&self, member: &Member, created: i64) -> Result<bool> {
        let stat = self
            .client()
            .check_stat(&self.child(&member.node))
            .await
            .map_err(reply_error::store_error)?;
        Ok(stat.is_some_and(|stat| stat.czxid == created))
    }

    /// In place of a node puts one with a smaller share, at the same place in line and under the same token.
    pub(super) async fn shrink(
        &self,
        claim: &Claim,
        member: &Member,
        token: Token,
    ) -> Result<Node> {
        let name = format!(
            "{}{:010}",
            self.address.settings.dialect.prefix(claim),
            member.sequence
        );
        let data = record::write(claim, Some(token));
        let mut both = self.client().new_multi_writer();
        let options = CreateMode::Ephemeral.with_acls(acls(self.address));
        both.add_create(&self.child(&name), &data, &options)
            .map_err(reply_error::store_error)?;
        both.add_delete(&self.child(&member.node), None)
            .map_err(reply_error::store_error)?;
        both.commit()
            .await
            .map_err(|error| reply_error::store_error(error.into()))?;
        Ok(Node {
            name,
            token,
            watched: None,
        })
    }

    /// Watches nodes; `None` if one is not there.
    pub(super) async fn watch(&self, nodes: &[String]) -> Result<Option<Vec<OneshotWatcher>>> {
        let paths: Vec<String> = nodes.iter().map(|node| self.child(node)).collect();
        // With their data, as a watch on what is not there would stay.
        let replies = join_all(
            paths
                .iter()
                .map(|path| self.client().get_and_watch_data(path)),
        )
        .await;
        let mut watchers = Vec::with_capacity(replies.len());
        for reply in replies {
            match reply {
                Ok((_, _, watcher)) => watchers.push(watcher),
                Err(ZkError::NoNode) => return Ok(None),
                Err(error) => return Err(reply_error::store_error(error)),
            }
        }
        Ok(Some(watchers))
    }

    /// The data of nodes, in order; `None` for those that are not there.
    pub(super) async fn read(&self, nodes: &[String]) -> Result<Vec<Option<(Vec<u8>, Stat)>>> {
        let paths: Vec<String> = nodes.iter().map(|node| self.child(node)).collect();
        let replies = join_all(paths.iter().map(|path| self.client().get_data(path))).await;
        let node_state = |reply| match reply {
            Ok(found) => Ok(Some(found)),
            Err(ZkError::NoNode) => Ok(None),
            Err(error) => Err(reply_error::store_error(error)),
        };
        replies.into_iter().map(node_state).collect()
    }
}

/// The number of the transaction that made the node, which a node that was put in place of another keeps of that one. Never
/// the sequence number: that begins anew when a lock's node was cleared away.
pub(super) fn token(data: Option<&[u8]>, stat: &Stat) -> Result<Token> {
    let kept = data.and_then(record::read).and_then(|record| record.token);
    let created = || u64::try_from(stat.czxid).ok().and_then(Token::new);
    kept.or_else(created)
        .ok_or_else(|| Error::damaged("the server gave a node no number"))
}

/// The id by which a claim of somebody else's library is known: its node's number, as others use one id for many claims.
pub(super) fn foreign_id(stat: &Stat) -> ClaimId {
    let mut bytes = *b"czxid:\0\0\0\0\0\0\0\0\0\0";
    bytes[8..].copy_from_slice(&stat.czxid.to_be_bytes());
    ClaimId::from_bytes(bytes)
}

/// No id that is drawn looks so: it would have a 4 in its seventh byte.
fn foreign_info(id: ClaimId) -> Option<i64> {
    let bytes = id.to_bytes();
    let number = bytes.strip_prefix(b"czxid:\0\0")?;
    Some(i64::from_be_bytes(number.try_into().ok()?))
}
