//! The store on ZooKeeper.
//!
//! A lock is a node, and each claim is an ephemeral sequential child of it. The servers keep the
//! queue, and remove the nodes of a session that has ended. A waiter watches the smallest set of
//! predecessors of which at least one must leave before it can be granted. It lists the children
//! again when one of them has left.

mod address;
mod builder;
mod claims;
mod enter;
mod examination;
mod generation;
mod inspect;
mod layout;
mod leave;
mod liveness;
mod lock_name;
mod lock_node;
mod queue;
mod reachability;
mod record;
mod renewal;
mod replacement;
mod reply_error;
mod search;
mod session;
mod subscription;
mod supervisor;
#[cfg_attr(not(feature = "tls"), path = "zookeeper/no_tls.rs")]
mod tls;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::store::Extensions;
use crate::{
    Claim, CrashDetection, Entered, Guarantees, LockState, Name, OnContention, Result, Slots,
    Standing, Store,
};
use address::Address;
use claims::TrackedNodes;
use generation::ExhaustedNodes;
use layout::Dialect;
use supervisor::SessionSupervisor;

pub use builder::ZooKeeperBuilder;
pub(crate) use examination::examine;

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
    /// | `password-file=/path` | a file with the password |
    /// | `ca=/path` | the certificate authority to trust, in PEM; the default is the system's |
    /// | `cert=/path`, `key=/path` | the client's certificate, for servers that require one |
    ///
    /// The settings `ca`, `cert` and `key` require `zookeeper+tls://`. Their files are PEM.
    ///
    /// # Errors
    /// [`is_invalid`](crate::Error::is_invalid) for a URL that cannot be parsed.
    pub fn builder(url: &str) -> Result<ZooKeeperBuilder> {
        ZooKeeperBuilder::parse(url)
    }

    fn path(&self, name: &Name) -> String {
        lock_node::path_of(&self.address, name)
    }

    fn dialect(&self) -> Dialect {
        self.address.settings.dialect
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
            readers: true,
            slots: Slots::WhileInUse,
            lease_expiry: false,
            cohorts: false,
            crash: CrashDetection::Within(timeout),
        }
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        enter::enter(self, claim, on_contention).await
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        wait::changed(self, claim, seen).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        renewal::renew(self, claims).await
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        leave::remove_node(self, claim, self.claims.tracked(claim.id)).await
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions::default().with_observe(self)
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        inspect::inspect(self, name).await
    }

    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        inspect::list(self, prefix, count_max).await
    }
}

/// How long a request waits for a session.
const SESSION_WAIT: Duration = Duration::from_secs(5);
