//! The store on ZooKeeper.
//!
//! A lock is a node, and each claim an ephemeral sequential child of it: the servers keep the line, and end what belongs to a
//! session that has ended. Whoever waits watches those of whom one must go before it is granted, and lists the line again
//! when one has gone.

mod address;
mod generation;
mod lane;
mod layout;
mod ledger;
mod proof;
mod queue;
mod record;
mod session;
#[cfg_attr(not(feature = "tls"), path = "zookeeper/no_tls.rs")]
mod tls;
mod trouble;

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{join_all, select_all, try_join_all};

use crate::clock::Moment;
use crate::{
    Claim, ClaimId, Crash, Entered, Entry, Error, Line, Name, Patience, Promises, Result, Standing, Store, Token,
    background,
};
use address::Address;
use generation::Wear;
use lane::{Lane, Removal};
use layout::Dialect;
use ledger::{Known, Ledger, Node, Page};
use queue::{Place, Queue};
use session::{Keeper, Session};

/// Locks on ZooKeeper, 3.5.3 or newer.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use std::time::Duration;
/// let at = leasehold::stores::ZooKeeper::at("zookeeper://zk1,zk2,zk3/locks")?.session(Duration::from_secs(20))?;
/// let place = at.place();
/// let locks = leasehold::over(at.connect().await?, &place)?;
/// # Ok(()) }
/// ```
///
/// A client has one session for all it holds. While it lasts, so do its claims, whatever lease they ask for; a client that
/// the servers do not hear of for the session's timeout loses all of them.
#[derive(Debug)]
pub struct ZooKeeper {
    address: Arc<Address>,
    keeper: Arc<Keeper>,
    ledger: Ledger,
    wear: Wear,
}

/// Where to connect, and on which terms.
#[derive(Clone, Debug)]
pub struct ZooKeeperAt {
    address: Address,
}

impl ZooKeeper {
    /// The servers a URL names: `zookeeper://[user:password@]host[:port][,host[:port]…][/folder]`, or `zookeeper+tls://…`.
    ///
    /// Locks are kept below `/leasehold` unless the URL names another folder; `/` at its end is the root.
    ///
    /// | setting | |
    /// |---|---|
    /// | `session=10s` | see [`ZooKeeperAt::session`] |
    /// | `dialect=kazoo` | nodes as kazoo names them, in place of Curator's way |
    /// | `acl=creator` | nodes are for those alone who show the same user and password |
    /// | `password-file=/path` | a file with the password |
    /// | `ca=/path` | the authority to trust, in PEM, instead of the system's; `zookeeper+tls://` only |
    /// | `cert=/path`, `key=/path` | our own certificate, in PEM, for servers that ask for one |
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) for a URL nobody understands.
    pub fn at(url: &str) -> Result<ZooKeeperAt> {
        Ok(ZooKeeperAt { address: Address::parse(url)? })
    }
}

impl ZooKeeperAt {
    /// For how long the servers keep a session they do not hear of, 10 s unless said; from a second to an hour. So long after
    /// a crash the locks are free. The servers may agree to less or more: from 2 to 20 of their ticks unless they are told
    /// otherwise, and a warning says so.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if it is out of range.
    pub fn session(mut self, timeout: Duration) -> Result<Self> {
        self.address.terms.session = address::check_session(timeout)?;
        Ok(self)
    }

    /// The URL without user, password and settings.
    #[must_use]
    pub fn place(&self) -> String {
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
        let keeper = Arc::new(Keeper::start(Arc::clone(&address)));
        let store = ZooKeeper { keeper, address, ledger: Ledger::default(), wear: Wear::default() };
        background::within(store.keeper.first()).await?;
        Ok(store)
    }
}

/// How long to wait for a session, where there is none.
const LISTEN: Duration = Duration::from_secs(5);
/// Time for a lock's node without numbers to become empty. The engine asks three times within the
/// ten seconds that it listens.
const REPLACED_WITHIN: Duration = Duration::from_millis(2_500);
/// Locks that are listed at a time.
const LISTED_AT_A_TIME: usize = 64;

impl ZooKeeper {
    fn path(&self, name: &Name) -> String {
        lane::path_of(&self.address, name)
    }

    fn dialect(&self) -> Dialect {
        self.address.terms.dialect
    }

    /// A claim's page, with its node and all children of the lock: found, or put there.
    async fn stand(&self, session: &Arc<Session>, lane: Lane<'_>, claim: &Claim) -> Result<Found> {
        let page = self.ledger.page(claim.id).filter(|page| page.session.id() == session.id());
        if let Some(page) = page {
            let found = match page.known() {
                Known::Yes(node) if !page.is_unanswered() => Some(node),
                Known::Yes(_) | Known::Pending | Known::Perhaps => lane.find(claim.id).await?.map(|(_, node)| node),
                Known::No => None,
            };
            if let Some(node) = found {
                page.found(node.clone());
                let part = self.part(lane, claim, &page, node).await?;
                if let Some((node, children)) = part {
                    return Ok(Found { page, node, children, is_new: false });
                }
            }
        }

        let page = self.ledger.begin(claim.id, Arc::clone(session));
        let pending = page.pending();
        let (node, children) = lane.create(claim).await?;
        pending.replied(node.clone());
        Ok(Found { page, node, children, is_new: true })
    }

    /// The node and the children, after what the claim gives back was given back; `None` if its
    /// node is not there.
    async fn part(
        &self,
        lane: Lane<'_>,
        claim: &Claim,
        page: &Page,
        node: Node,
    ) -> Result<Option<(Node, Vec<String>)>> {
        let children = lane.list().await?;
        if !children.contains(&node.name) {
            return Ok(None);
        }
        let present = self.dialect().member(&node.name)?;
        claim.share.is_part_of(present.share)?;
        if claim.share.units() == present.share.units() {
            return Ok(Some((node, children)));
        }

        let pending = page.pending();
        let smaller = lane.shrink(claim, &present, node.token).await?;
        pending.replied(smaller.clone());

        lane.list().await.map(|children| Some((smaller, children)))
    }

    /// Where a claim stands by a listing, and whom it waits for from now on.
    fn judge(&self, page: &Page, node: &Node, children: &[String]) -> Result<Standing> {
        match Queue::read(children, self.dialect())?.place(&node.name)? {
            None => Ok(Standing::Gone),
            Some(Place::Held) => {
                page.session.note_holder();
                Ok(Standing::Held { token: node.token })
            }
            Some(Place::Queued { ahead, watched }) => {
                page.watches(watched);
                Ok(Standing::Queued { ahead })
            }
        }
    }

    /// Removes a lock's node that has no numbers left, once it has no children, and waits for that.
    /// `false` if claims with earlier numbers hold it on.
    async fn replace_worn_out(&self, lane: Lane<'_>, path: &str, patience: Patience) -> Result<bool> {
        let deadline = tokio::time::Instant::now() + REPLACED_WITHIN;
        loop {
            let (children, watcher) = match lane.remove_worn_out().await? {
                Removal::Done => {
                    self.wear.forget(path);
                    return Ok(true);
                }
                Removal::InUse(children, watcher) => (children, watcher),
            };

            let queue = Queue::read(&children, self.dialect())?;
            let is_in_order = queue.members.first().is_some_and(|first| !generation::is_worn_out(first.sequence));
            if is_in_order && patience == Patience::Refuse {
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
    async fn withdraw(&self, claim: &Claim, page: Option<Arc<Page>>) -> Result<bool> {
        let session = self.keeper.session(LISTEN).await?;
        let path = self.path(&claim.name);
        let lane = Lane::new(&session, &self.address, &path);
        let there = match page.as_ref().map(|page| (page.known(), page.is_unanswered())) {
            Some((Known::Yes(node), false)) => lane.delete(&node.name).await?,
            Some((Known::No, false)) => false,
            Some(_) => {
                let there = lane.clear(claim.id).await?;
                let (keeper, address) = (Arc::downgrade(&self.keeper), Arc::clone(&self.address));
                background::handle().spawn(look_after(keeper, address, path, claim.id, session.timeout() * 2));
                there
            }
            None => lane.clear(claim.id).await?,
        };
        self.ledger.end(claim.id);
        Ok(there)
    }
}

/// A claim's node among the children of the lock.
struct Found {
    page: Arc<Page>,
    node: Node,
    children: Vec<String>,
    /// It was put there now.
    is_new: bool,
}

/// A node whose making was not answered may still be made: a server may have the request in its hands. So it is looked for
/// until no server can have it any more.
async fn look_after(keeper: Weak<Keeper>, address: Arc<Address>, path: String, id: ClaimId, time: Duration) {
    let until = Moment::now().after(time);
    while Moment::now() < until {
        tokio::time::sleep(time / 8).await;
        let Some(session) = keeper.upgrade().and_then(|keeper| keeper.present()) else { continue };
        // What cannot be looked for now is looked for again.
        let _ = Lane::new(&session, &address, &path).clear(id).await;
    }
}

#[async_trait]
impl Store for ZooKeeper {
    fn promises(&self) -> Promises {
        let timeout = self.keeper.present().map_or(self.address.terms.session, |session| session.timeout());
        Promises { fifo: true, tokens: true, shares: true, expiry: false, crash: Crash::Within(timeout) }
    }

    async fn enter(&self, claim: &Claim, patience: Patience) -> Result<Entered> {
        let asked = Moment::now();
        let session = self.keeper.living(LISTEN.max(self.address.terms.session)).await?;
        let path = self.path(&claim.name);
        let lane = Lane::new(&session, &self.address, &path);

        let found = loop {
            // A client that knows of a worn out node spends none of its last numbers.
            if self.wear.is_noted(&path) && self.ledger.page(claim.id).is_none() {
                let is_replaced = self.replace_worn_out(lane, &path, patience).await?;
                if !is_replaced {
                    return Ok(Entered { standing: Standing::Gone, lease: session.left(asked)? });
                }
            }

            let found = self.stand(&session, lane, claim).await?;
            let sequence = self.dialect().member(&found.node.name)?.sequence;
            self.wear.warn(&path, sequence);
            if !generation::is_worn_out(sequence) {
                break found;
            }
            self.wear.note(&path);
            let is_unanswered = found.page.is_unanswered();
            self.withdraw(claim, Some(found.page)).await?;
            // What may still reach the servers is removed by this id for a while, so the engine
            // draws another.
            if is_unanswered {
                return Ok(Entered { standing: Standing::Gone, lease: session.left(asked)? });
            }
        };

        let standing = match self.judge(&found.page, &found.node, &found.children) {
            Ok(Standing::Queued { .. }) if patience == Patience::Refuse => Ok(Standing::Gone),
            standing => standing,
        };
        if matches!(standing, Ok(Standing::Gone)) || standing.is_err() && found.is_new {
            self.withdraw(claim, Some(found.page)).await?;
        }
        Ok(Entered { standing: standing?, lease: session.left(asked)? })
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        let path = self.path(&claim.name);
        loop {
            let Some(page) = self.ledger.page(claim.id) else { return Ok(Standing::Gone) };
            let mut updated = std::pin::pin!(page.updated.notified());
            updated.as_mut().enable();
            if page.session.is_over() {
                return Ok(Standing::Gone);
            }
            let lane = Lane::new(&page.session, &self.address, &path);

            let node = match page.known() {
                Known::Yes(node) => node,
                Known::No => return Ok(Standing::Gone),
                // A claim whose node is being replaced has one all the time. The server reports the
                // old one's end first.
                Known::Pending => {
                    tokio::select! {
                        () = updated => {}
                        () = page.session.ended() => {}
                    }
                    continue;
                }
                Known::Perhaps => {
                    self.search(lane, claim.id, &page, None).await?;
                    continue;
                }
            };

            let watched = match seen {
                Standing::Queued { .. } => page.take_watched(),
                Standing::Held { .. } => Some(vec![node.name.clone()]),
                Standing::Gone => None,
            };
            let Some(watched) = watched else {
                let standing = self.judge(&page, &node, &lane.list().await?)?;
                if standing == Standing::Gone && self.search_missing(lane, claim.id, &page, &node).await? {
                    continue;
                }
                if standing != seen {
                    return Ok(standing);
                }
                continue;
            };
            let Some(watchers) = lane.watch(&watched).await? else {
                if seen.token().is_some() {
                    self.search_missing(lane, claim.id, &page, &node).await?;
                }
                continue;
            };
            let changed = select_all(watchers.into_iter().map(|watcher| Box::pin(watcher.changed())));
            tokio::select! {
                _ = changed => {}
                () = updated => {}
                () = page.session.ended() => {}
            }
        }
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        let asked = Moment::now();
        let pages: Vec<_> = claims.iter().map(|claim| self.ledger.page(claim.id)).collect();
        let alive = |page: &Option<Arc<Page>>| page.as_ref().filter(|page| !page.session.is_over()).cloned();
        let Some(session) = pages.iter().find_map(alive).map(|page| Arc::clone(&page.session)) else {
            return Ok(vec![None; claims.len()]);
        };
        session.confirmed().await;
        session.next_confirmation().await;
        let answers = claims.iter().zip(&pages).map(|(claim, page)| {
            let (page, path, session) = (alive(page), self.path(&claim.name), &session);
            async move {
                let Some(page) = page else { return Ok(false) };
                self.is_there(session, &path, claim.id, &page).await
            }
        });
        let found = try_join_all(answers).await?;
        let left = session.left(asked)?;
        Ok(found.into_iter().map(|is_there| is_there.then_some(left)).collect())
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        self.withdraw(claim, self.ledger.page(claim.id)).await
    }

    fn anchors(&self, _claim: &Claim) -> Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }

    async fn look(&self, name: &Name) -> Result<Line> {
        let session = self.keeper.session(LISTEN).await?;
        let path = self.path(name);
        let lane = Lane::new(&session, &self.address, &path);
        let queue = Queue::read_known(&lane.list().await?, self.dialect());
        let nodes: Vec<String> = queue.members.iter().map(|member| member.node.clone()).collect();
        let mut entries = Vec::with_capacity(nodes.len());
        for (at, (member, found)) in queue.members.iter().zip(lane.read(&nodes).await?).enumerate() {
            let Some((data, stat)) = found else { continue };
            let standing = if at < queue.granted {
                Standing::Held { token: lane::token(Some(&data), &stat)? }
            } else {
                Standing::Queued { ahead: u32::try_from(at).unwrap_or(u32::MAX) }
            };
            entries.push(if let (Some(record), Some(id)) = (record::read(&data), member.id) {
                Entry { id, share: record.share, standing, note: record.note }
            } else {
                let note = record::stranger(&data, &self.dialect().to_string(), stat.ctime);
                Entry { id: lane::id_of_stranger(&stat), share: member.share, standing, note }
            });
        }
        let last: Option<Token> = entries.iter().filter_map(Entry::token).max();
        Ok(Line { name: name.clone(), entries, last, strangers: Vec::new(), views: Vec::new() })
    }

    async fn names(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let session = self.keeper.session(LISTEN).await?;
        let folder = if self.address.base.is_empty() { "/" } else { &self.address.base };
        let nodes = Lane::new(&session, &self.address, folder).list().await?;
        let mut names: Vec<Name> = nodes.iter().filter_map(|node| layout::name_of(node)).collect();
        names.retain(|name| name.as_str().starts_with(prefix));
        names.sort_unstable();
        let mut in_use = Vec::new();
        for some in names.chunks(LISTED_AT_A_TIME) {
            let paths: Vec<String> = some.iter().map(|name| self.path(name)).collect();
            let lines = join_all(paths.iter().map(|path| async {
                let children = Lane::new(&session, &self.address, path).list().await?;
                Ok::<_, Error>(children.iter().any(|child| self.dialect().read(child).is_some()))
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
    async fn is_there(&self, session: &Session, path: &str, id: ClaimId, page: &Page) -> Result<bool> {
        let lane = Lane::new(session, &self.address, path);
        let is_there = match page.known() {
            Known::Yes(node) => lane.has(&node.name).await? || self.search_missing(lane, id, page, &node).await?,
            // The request ends soon, with its reply or without.
            Known::Pending => true,
            Known::Perhaps => self.search(lane, id, page, None).await?,
            Known::No => false,
        };
        // Where a request may still reach the servers, leaving closes the page.
        if !is_there && !page.is_unanswered() {
            self.ledger.end(id);
        }
        Ok(is_there)
    }

    /// Whether a claim has another node than the one that is missing. Without a lost reply there is
    /// none to search for.
    async fn search_missing(&self, lane: Lane<'_>, id: ClaimId, page: &Page, missing: &Node) -> Result<bool> {
        if page.is_unanswered() {
            return self.search(lane, id, page, Some(missing)).await;
        }
        Ok(page.searched(Some(missing), None))
    }

    /// Searches for a claim's node by the claim's id.
    async fn search(&self, lane: Lane<'_>, id: ClaimId, page: &Page, missing: Option<&Node>) -> Result<bool> {
        let found = lane.find(id).await?.map(|(_, node)| node);
        Ok(page.searched(missing, found))
    }
}
