//! The store of [leasehold](https://docs.rs/leasehold) on ZooKeeper: only the crate `leasehold`
//! follows semantic versioning, and a program names nothing of this one.
//!
//! A lock is a node, and each claim is an ephemeral sequential child of it. The servers keep the
//! queue, and remove the nodes of a session that has ended. A waiter watches the smallest set of
//! predecessors of which at least one must leave before it can be granted. It lists the children
//! again when one of them has left.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod address;
mod claims;
mod enter;
mod examination;
mod generation;
mod inspect;
mod job_record;
mod layout;
mod leave;
mod liveness;
mod lock_name;
mod lock_node;
mod queue;
mod record;
mod replacement;
mod reply_error;
mod search;
mod session;
mod subscription;
mod supervisor;
#[cfg(test)]
#[path = "../../leasehold-core/src/test_inputs.rs"]
mod test_inputs;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;
mod wait;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::future::{join_all, try_join_all};

use address::Address;
use claims::TrackedNodes;
use examination::examine;
use generation::ExhaustedNodes;
use job_record::RecordFolder;
use layout::Dialect;
use leasehold_core::internal::{self, BootInstant, StoreKind, UnopenedStore, background};
use leasehold_core::store::{
    Claim, Cleanup, Entered, Extensions, Housekeeping, OnContention, RecordReader, Records,
    Standing, Store, replies,
};
use leasehold_core::{
    Completion, Entry, Guarantees, LockState, Name, Record, Result, SemaphoreSupport, Token,
};
use lock_node::LockNode;
use supervisor::{SessionSupervisor, Sessions, confirmed_session};
use wait::wait_for_change;

/// The stores on ZooKeeper.
#[doc(hidden)]
pub static ZOOKEEPER: StoreKind = StoreKind {
    help: &[
        (
            "zookeeper://host1,host2/folder",
            "ZooKeeper, in the format of Curator",
        ),
        ("zookeeper+tls://host1,host2", "ZooKeeper, over TLS"),
        (
            "zookeeper://…?dialect=kazoo",
            "ZooKeeper, in the format of kazoo",
        ),
    ],
    aliases: &[
        ("zk", "write zookeeper://host"),
        ("zookeepers", "write zookeeper+tls://host"),
    ],
    dialects: &[
        internal::Dialect {
            name: "curator",
            help: "Curator on ZooKeeper",
            settings: "",
        },
        internal::Dialect {
            name: "kazoo",
            help: "kazoo on ZooKeeper",
            settings: "dialect=kazoo",
        },
    ],
    ..StoreKind::new(&[&address::FORM], |url| {
        let builder = ZooKeeper::builder(url)?;
        let address = Arc::new(builder.address.clone());
        let guarantees = guarantees(address.settings.session);
        let opening = UnopenedStore::new(builder.url(), guarantees, move |_| {
            builder.clone().connect()
        });
        Ok(opening.examined_by(move || examine(Arc::clone(&address))))
    })
};

fn guarantees(session: Duration) -> Guarantees {
    let mut guarantees = replies::guarantees(replies::released_within(session));
    guarantees.fifo = true;
    guarantees.tokens = true;
    guarantees.rwlock = true;
    guarantees.semaphore = SemaphoreSupport::WhileInUse;
    guarantees
}

/// Locks on ZooKeeper, 3.5.3 or newer.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use std::time::Duration;
/// let builder = leasehold::stores::ZooKeeper::builder("zookeeper://zk1,zk2,zk3/locks")?;
/// let builder = builder.session(Duration::from_secs(20))?;
/// let url = builder.url();
/// let locks = leasehold::Locks::from_store(builder.connect().await?, &url)?;
/// # Ok(()) }
/// ```
///
/// A client has one session for all its claims. The claims last as long as the session, regardless
/// of their lease. A client that cannot reach the servers for the session's timeout loses all its
/// claims.
#[derive(Debug)]
pub struct ZooKeeper {
    address: Arc<Address>,
    supervisor: Arc<SessionSupervisor>,
    claims: TrackedNodes,
    exhausted: ExhaustedNodes,
}

impl ZooKeeper {
    /// Parses `zookeeper://[user:password@]host[:port][,host[:port]…][/folder]`, or
    /// `zookeeper+tls://…`.
    ///
    /// Locks are kept below `/leasehold` unless the URL names another folder. The path `/` is the
    /// root.
    ///
    /// | setting | |
    /// |---|---|
    /// | `session=10s` | see [`ZooKeeperBuilder::session`] |
    /// | `dialect=kazoo` | uses kazoo's node names; the default is Curator's |
    /// | `acl=creator` | only clients with the same user and password may use the nodes |
    /// | `records=40d` | how long the record of a job that runs [once](leasehold_core::Once) is kept |
    /// | `password-file=/path` | a file with the password, read again for every connection |
    /// | `ca=/path` | the authority to trust instead of the system's, in PEM; only with TLS |
    /// | `cert=/path`, `key=/path` | the client's certificate, for servers that require one |
    ///
    /// The settings `ca`, `cert` and `key` require `zookeeper+tls://`. Their files are PEM.
    ///
    /// # Errors
    /// [`is_invalid`](leasehold_core::Error::is_invalid) for a URL that cannot be parsed.
    pub fn builder(url: &str) -> Result<ZooKeeperBuilder> {
        let address = Address::parse(url)?;
        Ok(ZooKeeperBuilder { address })
    }

    fn path(&self, name: &Name) -> String {
        lock_node::path_of(&self.address, name)
    }

    fn dialect(&self) -> Dialect {
        self.address.settings.dialect
    }
}

/// A ZooKeeper store that is not connected yet.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use std::time::Duration;
/// use leasehold::{Locks, stores::ZooKeeper};
///
/// let builder = ZooKeeper::builder("zookeeper://host/locks")?;
/// let builder = builder.session(Duration::from_secs(20))?;
/// let url = builder.url();
/// let locks = Locks::from_store(builder.connect().await?, &url)?;
/// # drop(locks);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ZooKeeperBuilder {
    address: Address,
}

impl ZooKeeperBuilder {
    /// Sets how long the servers keep a session without a request, from 1 s to 1 h; 10 s by
    /// default.
    ///
    /// After a crash the locks of a client are free when this time has passed. The servers may set
    /// a shorter or longer timeout: by default, they allow 2 to 20 of their ticks. The store then
    /// logs a warning.
    ///
    /// # Errors
    /// [`is_invalid`](leasehold_core::Error::is_invalid) if the timeout is out of range.
    pub fn session(mut self, timeout: Duration) -> Result<Self> {
        self.address.settings.session = address::SESSION.check_duration(timeout)?;
        Ok(self)
    }

    /// Returns the URL without user, password and settings.
    #[must_use]
    pub fn url(&self) -> String {
        self.address.to_string()
    }

    /// Connects to the servers.
    ///
    /// Afterwards the store reconnects by itself, and opens a new session when the old one has
    /// ended.
    ///
    /// # Errors
    /// - [`is_unavailable`](leasehold_core::Error::is_unavailable) if no server can be reached;
    /// - [`is_denied`](leasehold_core::Error::is_denied) if the servers reject the user;
    /// - [`is_invalid`](leasehold_core::Error::is_invalid) if a file that the URL names cannot be read.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn connect(self) -> Result<ZooKeeper> {
        background::start()?;
        let address = Arc::new(self.address);
        let sessions = Sessions::of(Arc::clone(&address));
        let store = ZooKeeper {
            supervisor: Arc::new(SessionSupervisor::spawn(sessions)),
            address,
            claims: TrackedNodes::default(),
            exhausted: ExhaustedNodes::default(),
        };

        background::on_background(store.supervisor.first()).await?;
        Ok(store)
    }
}

#[async_trait]
impl Store for ZooKeeper {
    fn guarantees(&self) -> Guarantees {
        let timeout = self
            .supervisor
            .current()
            .map_or(self.address.settings.session, |session| session.timeout());
        guarantees(timeout)
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        let sent_at = BootInstant::now();
        let limit = SESSION_WAIT.max(self.address.settings.session);
        let session = confirmed_session(&self.supervisor, limit).await?;
        let path = self.path(&claim.name);
        let lock_node = LockNode::new(&session, &self.address, &path);

        let standing = match enter::usable_node(self, lock_node, claim, on_contention).await? {
            Some(found) => enter::keep_or_leave(self, claim, found, on_contention).await?,
            None => Standing::Gone,
        };
        Ok(Entered::new(standing, session.remaining(sent_at)?))
    }

    async fn queued(&self, claim: &Claim, ahead: u32) -> Result<Standing> {
        wait_for_change(self, claim, Standing::Queued { ahead }).await
    }

    async fn lost(&self, claim: &Claim, token: Token) -> Result<()> {
        wait_for_change(self, claim, Standing::Held { token }).await?;
        Ok(())
    }

    /// Renews claims: each lasts as long as its session, if its node exists.
    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        let sent_at = BootInstant::now();
        let alive: Vec<_> = claims
            .iter()
            .map(|claim| search::alive_claim(self, claim))
            .collect();
        let Some(first) = alive.iter().flatten().next() else {
            return Ok(vec![None; claims.len()]);
        };
        let session = &first.session;
        session.confirmed().await;
        session.next_confirmation().await;

        let checks = claims
            .iter()
            .zip(&alive)
            .map(|(claim, tracked)| async move {
                match tracked {
                    Some(tracked) if !tracked.session.is_over() => {
                        search::has_node(self, session, claim, tracked).await
                    }
                    _ => Ok(false),
                }
            });
        let found = try_join_all(checks).await?;
        let remaining = session.remaining(sent_at)?;
        let renewed = found
            .into_iter()
            .map(|is_there| is_there.then_some(remaining));
        Ok(renewed.collect())
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        leave::remove_node(self, claim, self.claims.tracked(claim.id)).await
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions {
            observe: Some(self),
            records: Some(self),
            housekeeping: Some(self),
            ..Extensions::default()
        }
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        let session = self.supervisor.session(SESSION_WAIT).await?;
        let path = self.path(name);
        let lock_node = LockNode::new(&session, &self.address, &path);
        let entries = inspect::entries(lock_node, self.dialect()).await?;

        let mut lock_state = replies::lock_state(name.clone());
        lock_state.last_token = entries.iter().filter_map(Entry::token).max();
        lock_state.entries = entries;
        Ok(lock_state)
    }

    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let session = self.supervisor.session(SESSION_WAIT).await?;
        let folder = LockNode::new(&session, &self.address, self.address.folder());
        let mut names: Vec<Name> = folder
            .list()
            .await?
            .iter()
            .filter_map(|node| lock_name::name_of(node))
            .filter(|name| name.as_str().starts_with(prefix))
            .collect();
        names.sort_unstable();

        let mut in_use = Vec::new();
        for part in names.chunks(LISTED_AT_A_TIME) {
            let checks = part
                .iter()
                .map(|name| inspect::has_claims(self, &session, name));
            for (name, is_used) in part.iter().zip(join_all(checks).await) {
                match is_used {
                    Ok(false) => {}
                    Err(error) if error.is_unavailable() => return Err(error),
                    // Inspecting a lock that cannot be read reports why. It does not hide the other
                    // names.
                    Ok(true) | Err(_) => in_use.push(name.clone()),
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

#[async_trait]
impl Records for ZooKeeper {
    async fn kept(&self) -> Result<Duration> {
        Ok(self.address.settings.records)
    }

    async fn record(&self, name: &Name, reader: RecordReader) -> Result<Record> {
        let session = self.supervisor.session(SESSION_WAIT).await?;
        let folder = RecordFolder::new(&session, &self.address);
        if reader == RecordReader::Observer {
            let found = folder.find(name, reader).await?;
            return Ok(found.map_or_else(|| Record::empty(SystemTime::now()), |found| found.record));
        }

        let found = folder.read(name).await?;
        folder.keep(name, &found).await?;
        Ok(found.record)
    }

    async fn complete(&self, claim: &Claim, completion: &Completion) -> Result<bool> {
        let session = self.supervisor.session(SESSION_WAIT).await?;
        let folder = RecordFolder::new(&session, &self.address);
        let lock_path = self.path(&claim.name);
        let lock_node = LockNode::new(&session, &self.address, &lock_path);

        let is_recorded = folder.complete(lock_node, claim, completion).await?;
        if is_recorded {
            let tracked = self.claims.tracked(claim.id);
            if let Some(tracked) = &tracked {
                tracked.gone();
            }
            leave::remove_node(self, claim, tracked).await?;
        }
        Ok(is_recorded)
    }

    async fn list_records(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let session = self.supervisor.session(SESSION_WAIT).await?;
        let mut names = RecordFolder::new(&session, &self.address).names().await?;
        names.retain(|name| name.as_str().starts_with(prefix));
        names.truncate(count_max);
        Ok(names)
    }
}

#[async_trait]
impl Housekeeping for ZooKeeper {
    /// Removes the records whose last use is long ago. The servers remove the nodes of unused locks;
    /// those of `dialect=kazoo` stay.
    async fn remove_unused(&self) -> Result<Cleanup> {
        let session = self.supervisor.session(SESSION_WAIT).await?;
        let folder = RecordFolder::new(&session, &self.address);

        let mut cleanup = Cleanup::default();
        for name in folder.names().await? {
            match folder.remove_old(&name).await {
                Ok(is_removed) => cleanup.removed += u64::from(is_removed),
                Err(error) if error.is_unavailable() => return Err(error),
                Err(error) => cleanup.skipped.push(error),
            }
        }
        Ok(cleanup)
    }
}

/// How many locks are listed in one round trip.
const LISTED_AT_A_TIME: usize = 64;
/// How long a request waits for a session.
const SESSION_WAIT: Duration = Duration::from_secs(5);
