//! The store on ZooKeeper.
//!
//! A lock is a node, and each claim an ephemeral sequential child of it: the servers keep the line, and end what belongs to a
//! session that has ended. Whoever waits watches those of whom one must go before it is granted, and lists the line again
//! when one has gone.

mod address;
mod claims;
mod generation;
mod layout;
mod liveness;
mod lock_node;
mod queue;
mod record;
mod reply_error;
mod session;
#[cfg_attr(not(feature = "tls"), path = "zookeeper/no_tls.rs")]
mod tls;

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{join_all, select_all, try_join_all};

use crate::runtime::background;
use crate::runtime::clock::BootInstant;
use crate::store::Extensions;
use crate::{
    Claim, ClaimId, CrashDetection, Entered, Entry, Error, Guarantees, LockState, Name,
    OnContention, Result, Standing, Store, Token,
};
use address::Address;
use claims::{Claims, Node, NodeState, TrackedClaim};
use generation::Wear;
use layout::Dialect;
use lock_node::{LockNode, Removal};
use queue::{Queue, QueuePosition};
use session::{Session, SessionSupervisor};

/// Locks on ZooKeeper, 3.5.3 or newer.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use std::time::Duration;
/// let at = leasehold::stores::ZooKeeper::builder("zookeeper://zk1,zk2,zk3/locks")?.session(Duration::from_secs(20))?;
/// let place = at.url();
/// let locks = leasehold::Locks::from_store(at.connect().await?, &place)?;
/// # Ok(()) }
/// ```
///
/// A client has one session for all it holds. While it lasts, so do its claims, whatever lease they ask for; a client that
/// the servers do not hear of for the session's timeout loses all of them.
#[derive(Debug)]
pub struct ZooKeeper {
    address: Arc<Address>,
    supervisor: Arc<SessionSupervisor>,
    claims: Claims,
    wear: Wear,
}

/// Where to connect, and on which terms.
#[derive(Clone, Debug)]
pub struct ZooKeeperBuilder {
    address: Address,
}

impl ZooKeeper {
    /// The servers a URL names: `zookeeper://[user:password@]host[:port][,host[:port]…][/folder]`, or `zookeeper+tls://…`.
    ///
    /// Locks are kept below `/leasehold` unless the URL names another folder; `/` at its end is the root.
    ///
    /// | setting | |
    /// |---|---|
    /// | `session=10s` | see [`ZooKeeperBuilder::session`] |
    /// | `dialect=kazoo` | nodes as kazoo names them, in place of Curator's way |
    /// | `acl=creator` | nodes are for those alone who show the same user and password |
    /// | `password-file=/path` | a file with the password |
    /// | `ca=/path` | the authority to trust, in PEM, instead of the system's; `zookeeper+tls://` only |
    /// | `cert=/path`, `key=/path` | our own certificate, in PEM, for servers that ask for one |
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) for a URL nobody understands.
    pub fn builder(url: &str) -> Result<ZooKeeperBuilder> {
        Ok(ZooKeeperBuilder {
            address: Address::parse(url)?,
        })
    }
}

impl ZooKeeperBuilder {
    /// For how long the servers keep a session they do not hear of, 10 s unless said; from a second to an hour. So long after
    /// a crash the locks are free. The servers may agree to less or more: from 2 to 20 of their ticks unless they are told
    /// otherwise, and a warning says so.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if it is out of range.
    pub fn session(mut self, timeout: Duration) -> Result<Self> {
        self.address.settings.session = address::check_session(timeout)?;
        Ok(self)
    }

    /// The URL without user, password and settings.
    #[must_use]
    pub fn url(&self) -> String {
        self.address.to_string()
    }

    /// Connects; the connection, and if need be the session, is made again by itself.
    ///
    /// # Errors
    /// [`is_unavailable`](Error::is_unavailable) if no server can be reached, [`is_denied`](Error::is_denied) if it does not
    /// let this user in, [`is_invalid`](Error::is_invalid) if a file that the URL names cannot be read.
    ///
    /// *Cancel safety*: dropping the future closes what it opened.
    pub async fn connect(self) -> Result<ZooKeeper> {
        background::start()?;
        let address = Arc::new(self.address);
        let supervisor = Arc::new(SessionSupervisor::start(Arc::clone(&address)));
        let store = ZooKeeper {
            supervisor,
            address,
            claims: Claims::default(),
            wear: Wear::default(),
        };
        background::on_background(store.supervisor.first()).await?;
        Ok(store)
    }
}

/// How long to wait for a session, where there is none.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a lock's node without numbers to become empty. The engine asks three times within the
/// ten seconds that it listens.
const REPLACED_WITHIN: Duration = Duration::from_millis(2_500);
/// Locks that are listed at a time.
const LISTED_AT_A_TIME: usize = 64;

impl ZooKeeper {
    fn path(&self, name: &Name) -> String {
        lock_node::path_of(&self.address, name)
    }

    fn dialect(&self) -> Dialect {
        self.address.settings.dialect
    }

    /// A claim's page, with its node and all children of the lock: found, or put there.
    async fn ensure_node(
        &self,
        session: &Arc<Session>,
        lock_node: LockNode<'_>,
        claim: &Claim,
    ) -> Result<Found> {
        let tracked = self
            .claims
            .tracked(claim.id)
            .filter(|tracked| tracked.session.id() == session.id());
        if let Some(tracked) = tracked {
            let found = match tracked.node_state() {
                NodeState::Exists(node) if !tracked.is_unanswered() => Some(node),
                NodeState::Exists(_) | NodeState::Pending | NodeState::Unknown => {
                    lock_node.find(claim.id).await?.map(|(_, node)| node)
                }
                NodeState::Absent => None,
            };
            if let Some(node) = found {
                tracked.found(node.clone());
                let part = self
                    .apply_downgrade(lock_node, claim, &tracked, node)
                    .await?;
                if let Some((node, children)) = part {
                    return Ok(Found {
                        page: tracked,
                        node,
                        children,
                        is_new: false,
                    });
                }
            }
        }

        let tracked = self.claims.begin(claim.id, Arc::clone(session));
        let pending = tracked.pending();
        let (node, children) = lock_node.create(claim).await?;
        pending.replied(node.clone());
        Ok(Found {
            page: tracked,
            node,
            children,
            is_new: true,
        })
    }

    /// The node and the children, after what the claim gives back was given back; `None` if its
    /// node is not there.
    async fn apply_downgrade(
        &self,
        lock_node: LockNode<'_>,
        claim: &Claim,
        tracked: &TrackedClaim,
        node: Node,
    ) -> Result<Option<(Node, Vec<String>)>> {
        let children = lock_node.list().await?;
        if !children.contains(&node.name) {
            return Ok(None);
        }
        let present = self.dialect().member(&node.name)?;
        claim.share.check_shrinks_from(present.share)?;
        if claim.share.units() == present.share.units() {
            return Ok(Some((node, children)));
        }

        let pending = tracked.pending();
        let smaller = lock_node.shrink(claim, &present, node.token).await?;
        pending.replied(smaller.clone());

        lock_node
            .list()
            .await
            .map(|children| Some((smaller, children)))
    }

    /// Where a claim stands by a listing, and whom it waits for from now on.
    fn evaluate(
        &self,
        tracked: &TrackedClaim,
        node: &Node,
        children: &[String],
    ) -> Result<Standing> {
        match Queue::read(children, self.dialect())?.position(&node.name)? {
            None => Ok(Standing::Gone),
            Some(QueuePosition::Held) => {
                tracked.session.note_holder();
                Ok(Standing::Held { token: node.token })
            }
            Some(QueuePosition::Queued { ahead, watched }) => {
                tracked.watches(watched);
                Ok(Standing::Queued { ahead })
            }
        }
    }

    /// Removes a lock's node that has no numbers left, once it has no children, and waits for that.
    /// `false` if claims with earlier numbers hold it on.
    async fn replace_worn_out(
        &self,
        lock_node: LockNode<'_>,
        path: &str,
        on_contention: OnContention,
    ) -> Result<bool> {
        let deadline = tokio::time::Instant::now() + REPLACED_WITHIN;
        loop {
            let (children, watcher) = match lock_node.remove_worn_out().await? {
                Removal::Done => {
                    self.wear.forget(path);
                    return Ok(true);
                }
                Removal::InUse(children, watcher) => (children, watcher),
            };

            let queue = Queue::read(&children, self.dialect())?;
            let is_in_order = queue
                .members
                .first()
                .is_some_and(|first| !generation::is_worn_out(first.sequence));
            if is_in_order && on_contention == OnContention::Fail {
                return Ok(false);
            }

            let changed = tokio::time::timeout_at(deadline, watcher.changed()).await;
            match changed {
                Ok(_event) => {}
                Err(_too_late) if is_in_order => return Ok(false),
                Err(_too_late) => return Err(generation::used_by_others(path)),
            }
        }
    }

    /// Takes a claim's node away.
    async fn remove_node(&self, claim: &Claim, tracked: Option<Arc<TrackedClaim>>) -> Result<bool> {
        let session = self.supervisor.session(READ_TIMEOUT).await?;
        let path = self.path(&claim.name);
        let lock_node = LockNode::new(&session, &self.address, &path);
        let there = match tracked
            .as_ref()
            .map(|tracked| (tracked.node_state(), tracked.is_unanswered()))
        {
            Some((NodeState::Exists(node), false)) => lock_node.delete(&node.name).await?,
            Some((NodeState::Absent, false)) => false,
            Some(_) => {
                let there = lock_node.clear(claim.id).await?;
                let (supervisor, address) =
                    (Arc::downgrade(&self.supervisor), Arc::clone(&self.address));
                background::handle().spawn(sweep_late_node(
                    supervisor,
                    address,
                    path,
                    claim.id,
                    session.timeout() * 2,
                ));
                there
            }
            None => lock_node.clear(claim.id).await?,
        };
        self.claims.end(claim.id);
        Ok(there)
    }
}

/// A claim's node among the children of the lock.
struct Found {
    page: Arc<TrackedClaim>,
    node: Node,
    children: Vec<String>,
    /// It was put there now.
    is_new: bool,
}

/// A node whose making was not answered may still be made: a server may have the request in its hands. So it is looked for
/// until no server can have it any more.
async fn sweep_late_node(
    supervisor: Weak<SessionSupervisor>,
    address: Arc<Address>,
    path: String,
    id: ClaimId,
    time: Duration,
) {
    let until = BootInstant::now().saturating_add(time);
    while BootInstant::now() < until {
        tokio::time::sleep(time / 8).await;
        let Some(session) = supervisor
            .upgrade()
            .and_then(|supervisor| supervisor.current())
        else {
            continue;
        };
        // What cannot be looked for now is looked for again.
        let _ = LockNode::new(&session, &address, &path).clear(id).await;
    }
}

#[async_trait]
impl Store for ZooKeeper {
    fn guarantees(&self) -> Guarantees {
        let timeout = self
            .supervisor
            .current()
            .map_or(self.address.settings.session, |session| session.timeout());
        Guarantees {
            fifo: true,
            tokens: true,
            shares: true,
            lease_expiry: false,
            crash: CrashDetection::Within(timeout),
        }
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        let sent_at = BootInstant::now();
        let session = self
            .supervisor
            .confirmed_session(READ_TIMEOUT.max(self.address.settings.session))
            .await?;
        let path = self.path(&claim.name);
        let lock_node = LockNode::new(&session, &self.address, &path);

        let found = loop {
            // A client that knows of a worn out node spends none of its last numbers.
            if self.wear.is_noted(&path) && self.claims.tracked(claim.id).is_none() {
                let is_replaced = self
                    .replace_worn_out(lock_node, &path, on_contention)
                    .await?;
                if !is_replaced {
                    return Ok(Entered {
                        standing: Standing::Gone,
                        lease: session.remaining(sent_at)?,
                    });
                }
            }

            let found = self.ensure_node(&session, lock_node, claim).await?;
            let sequence = self.dialect().member(&found.node.name)?.sequence;
            self.wear.warn(&path, sequence);
            if !generation::is_worn_out(sequence) {
                break found;
            }
            self.wear.note(&path);
            let is_unanswered = found.page.is_unanswered();
            self.remove_node(claim, Some(found.page)).await?;
            // What may still reach the servers is removed by this id for a while, so the engine
            // draws another.
            if is_unanswered {
                return Ok(Entered {
                    standing: Standing::Gone,
                    lease: session.remaining(sent_at)?,
                });
            }
        };

        let standing = match self.evaluate(&found.page, &found.node, &found.children) {
            Ok(Standing::Queued { .. }) if on_contention == OnContention::Fail => {
                Ok(Standing::Gone)
            }
            standing => standing,
        };
        if matches!(standing, Ok(Standing::Gone)) || standing.is_err() && found.is_new {
            self.remove_node(claim, Some(found.page)).await?;
        }
        Ok(Entered {
            standing: standing?,
            lease: session.remaining(sent_at)?,
        })
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        let path = self.path(&claim.name);
        loop {
            let Some(tracked) = self.claims.tracked(claim.id) else {
                return Ok(Standing::Gone);
            };
            let mut updated = std::pin::pin!(tracked.updated.notified());
            updated.as_mut().enable();
            if tracked.session.is_over() {
                return Ok(Standing::Gone);
            }
            let lock_node = LockNode::new(&tracked.session, &self.address, &path);

            let node = match tracked.node_state() {
                NodeState::Exists(node) => node,
                NodeState::Absent => return Ok(Standing::Gone),
                // A claim whose node is being replaced has one all the time. The server reports the
                // old one's end first.
                NodeState::Pending => {
                    tokio::select! {
                        () = updated => {}
                        () = tracked.session.ended() => {}
                    }
                    continue;
                }
                NodeState::Unknown => {
                    self.search(lock_node, claim.id, &tracked, None).await?;
                    continue;
                }
            };

            let watched = match seen {
                Standing::Queued { .. } => tracked.take_watched(),
                Standing::Held { .. } => Some(vec![node.name.clone()]),
                Standing::Gone => None,
            };
            let Some(watched) = watched else {
                let standing = self.evaluate(&tracked, &node, &lock_node.list().await?)?;
                if standing == Standing::Gone
                    && self
                        .search_missing(lock_node, claim.id, &tracked, &node)
                        .await?
                {
                    continue;
                }
                if standing != seen {
                    return Ok(standing);
                }
                continue;
            };
            let Some(watchers) = lock_node.watch(&watched).await? else {
                if seen.token().is_some() {
                    self.search_missing(lock_node, claim.id, &tracked, &node)
                        .await?;
                }
                continue;
            };
            let changed = select_all(
                watchers
                    .into_iter()
                    .map(|watcher| Box::pin(watcher.changed())),
            );
            tokio::select! {
                _ = changed => {}
                () = updated => {}
                () = tracked.session.ended() => {}
            }
        }
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        let sent_at = BootInstant::now();
        let pages: Vec<_> = claims
            .iter()
            .map(|claim| self.claims.tracked(claim.id))
            .collect();
        let alive = |tracked: &Option<Arc<TrackedClaim>>| {
            tracked
                .as_ref()
                .filter(|tracked| !tracked.session.is_over())
                .cloned()
        };
        let Some(session) = pages
            .iter()
            .find_map(alive)
            .map(|tracked| Arc::clone(&tracked.session))
        else {
            return Ok(vec![None; claims.len()]);
        };
        session.confirmed().await;
        session.next_confirmation().await;
        let replies = claims.iter().zip(&pages).map(|(claim, tracked)| {
            let (tracked, path, session) = (alive(tracked), self.path(&claim.name), &session);
            async move {
                let Some(tracked) = tracked else {
                    return Ok(false);
                };
                self.is_present(session, &path, claim.id, &tracked).await
            }
        });
        let found = try_join_all(replies).await?;
        let remaining = session.remaining(sent_at)?;
        Ok(found
            .into_iter()
            .map(|is_there| is_there.then_some(remaining))
            .collect())
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        self.remove_node(claim, self.claims.tracked(claim.id)).await
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions::default()
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        let session = self.supervisor.session(READ_TIMEOUT).await?;
        let path = self.path(name);
        let lock_node = LockNode::new(&session, &self.address, &path);
        let queue = Queue::read_known(&lock_node.list().await?, self.dialect());
        let nodes: Vec<String> = queue
            .members
            .iter()
            .map(|member| member.node.clone())
            .collect();
        let mut entries = Vec::with_capacity(nodes.len());
        for (at, (member, found)) in queue
            .members
            .iter()
            .zip(lock_node.read(&nodes).await?)
            .enumerate()
        {
            let Some((data, stat)) = found else { continue };
            let standing = if at < queue.granted {
                Standing::Held {
                    token: lock_node::token(Some(&data), &stat)?,
                }
            } else {
                Standing::Queued {
                    ahead: u32::try_from(at).unwrap_or(u32::MAX),
                }
            };
            entries.push(
                if let (Some(record), Some(id)) = (record::read(&data), member.id) {
                    Entry {
                        id,
                        share: record.share,
                        standing,
                        info: record.info,
                    }
                } else {
                    let info = record::foreign_info(&data, &self.dialect().to_string(), stat.ctime);
                    Entry {
                        id: lock_node::foreign_id(&stat),
                        share: member.share,
                        standing,
                        info,
                    }
                },
            );
        }
        let last: Option<Token> = entries.iter().filter_map(Entry::token).max();
        Ok(LockState {
            name: name.clone(),
            entries,
            last_token: last,
            external_holders: Vec::new(),
            servers: Vec::new(),
        })
    }

    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let session = self.supervisor.session(READ_TIMEOUT).await?;
        let folder = if self.address.base.is_empty() {
            "/"
        } else {
            &self.address.base
        };
        let nodes = LockNode::new(&session, &self.address, folder)
            .list()
            .await?;
        let mut names: Vec<Name> = nodes
            .iter()
            .filter_map(|node| layout::name_of(node))
            .collect();
        names.retain(|name| name.as_str().starts_with(prefix));
        names.sort_unstable();
        let mut in_use = Vec::new();
        for some in names.chunks(LISTED_AT_A_TIME) {
            let paths: Vec<String> = some.iter().map(|name| self.path(name)).collect();
            let lines = join_all(paths.iter().map(|path| async {
                let children = LockNode::new(&session, &self.address, path).list().await?;
                Ok::<_, Error>(
                    children
                        .iter()
                        .any(|child| self.dialect().read(child).is_some()),
                )
            }));
            for (name, is_used) in some.iter().zip(lines.await) {
                if is_used? {
                    in_use.push(name.clone());
                }
            }
            if in_use.len() >= count_max {
                break;
            }
        }
        in_use.truncate(count_max);
        Ok(in_use)
    }
}

impl ZooKeeper {
    /// Whether a claim's node is there, as far as is known.
    async fn is_present(
        &self,
        session: &Session,
        path: &str,
        id: ClaimId,
        tracked: &TrackedClaim,
    ) -> Result<bool> {
        let lock_node = LockNode::new(session, &self.address, path);
        let is_there = match tracked.node_state() {
            NodeState::Exists(node) => {
                lock_node.has_node(&node.name).await?
                    || self.search_missing(lock_node, id, tracked, &node).await?
            }
            // The request ends soon, with its reply or without.
            NodeState::Pending => true,
            NodeState::Unknown => self.search(lock_node, id, tracked, None).await?,
            NodeState::Absent => false,
        };
        // Where a request may still reach the servers, leaving closes the page.
        if !is_there && !tracked.is_unanswered() {
            self.claims.end(id);
        }
        Ok(is_there)
    }

    /// Whether a claim has another node than the one that is missing. Without a lost reply there is
    /// none to search for.
    async fn search_missing(
        &self,
        lock_node: LockNode<'_>,
        id: ClaimId,
        tracked: &TrackedClaim,
        missing: &Node,
    ) -> Result<bool> {
        if tracked.is_unanswered() {
            return self.search(lock_node, id, tracked, Some(missing)).await;
        }
        Ok(tracked.searched(Some(missing), None))
    }

    /// Searches for a claim's node by the claim's id.
    async fn search(
        &self,
        lock_node: LockNode<'_>,
        id: ClaimId,
        tracked: &TrackedClaim,
        missing: Option<&Node>,
    ) -> Result<bool> {
        let found = lock_node.find(id).await?.map(|(_, node)| node);
        Ok(tracked.searched(missing, found))
    }
}
