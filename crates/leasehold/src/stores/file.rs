//! The store on one machine: a folder, without a server.
//!
//! The queue of a lock is a file with an entry for each claim. It is edited under a short flock(2).
//! Only the process that receives a grant can take the flock(2) of `NAME.lock` that belongs to the
//! grant. So each process writes its own grants: a holder that leaves wakes the waiters that fit,
//! and they write themselves down as holders. Each waiter watches, through the kernel, the process
//! of the waiter before it.
//!
//! The store deliberately has no timeouts, no polling and no leases. A claim ends when it leaves or
//! when its process ends.
//!
//! The modules in reading order:
//!
//! | module | content |
//! |---|---|
//! | this one | the [`Store`] implementation |
//! | [`transaction`] | the change of one queue under its lock |
//! | [`queue_file`] | the queue file: opened, locked, read |
//! | [`protocol`] | the steps: enter, poll, leave, renew, inspect |
//! | [`flock`] | `NAME.lock`, and waiting for external holders |
//! | [`wakeups`] | the claims to wake after a change |
//! | [`process`] | crash detection and the inbox of each process |
//! | [`counter`], [`entry`] | the format of the queue file |
//! | [`folder`] | the folder, its files, and the encoding of names |

mod counter;
mod entry;
mod flock;
mod folder;
mod process;
mod protocol;
mod queue_file;
mod transaction;
mod wakeups;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::{Mutex, RwLock};
use tokio::task::AbortHandle;

use super::url::Settings;
use crate::local_fs::Locality;
use crate::runtime::background;
use crate::store::{Extensions, InheritableFds};
use crate::{
    Claim, ClaimId, CrashDetection, Entered, Error, Guarantees, LockState, Name, OnContention,
    Result, Standing, Store,
};
use counter::Boot;
use flock::{FlockGuard, FlockMode, FlockWaiters};
use folder::Folder;
use process::{Inbox, Peer, Process, ProcessId, Wakeups};
use protocol::Situation;
use queue_file::Missing;
use transaction::{NameLocks, transact};
use wakeups::Wakers;

/// Locks between the processes of one machine, kept in a folder of a local disk.
///
/// flock(1) may lock the file `NAME.lock` in it too: both exclude each other.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("leasehold-doc-{}", std::process::id()));
/// let store = leasehold::stores::File::at(&folder)?;
/// let locks = leasehold::Locks::from_store(store, "file:")?;
/// locks.mutex("nightly").acquire().await?.release().await?;
/// # drop(locks); std::fs::remove_dir_all(folder).ok(); Ok(()) }
/// ```
#[derive(Debug)]
pub struct File {
    shared: Arc<Shared>,
    listener: Mutex<AbortHandle>,
}

impl File {
    /// Opens a folder. A missing folder is made, for this user alone.
    ///
    /// # Errors
    /// - [`is_denied`](Error::is_denied) if the folder cannot be written. The same if it belongs to
    ///   neither this user nor root, and neither this user's groups nor others may write it.
    /// - [`is_unsupported`](Error::is_unsupported) if it is not on a file system that is known to
    ///   be local.
    /// - [`is_unavailable`](Error::is_unavailable) if the disk is full.
    pub fn at(folder: &Path) -> Result<Self> {
        Self::builder(folder).open()
    }

    /// Configures a store before it is opened.
    ///
    /// ```
    /// # let name = format!("leasehold-builder-{}", std::process::id());
    /// # let folder = std::env::temp_dir().join(name);
    /// let store = leasehold::stores::File::builder(&folder).local(true).open()?;
    /// # drop(store); std::fs::remove_dir_all(folder).ok();
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn builder(folder: &Path) -> FileBuilder {
        FileBuilder {
            folder: folder.to_owned(),
            locality: Locality::Known,
        }
    }

    /// Opens the store of a `file:` URL from the part after the colon. An empty path is the user's
    /// state folder.
    pub(crate) fn at_url_path(url: &str) -> Result<Self> {
        let (path, is_local) = match url.split_once('?') {
            None => (url, false),
            Some((path, settings)) => (path, states_local(settings)?),
        };

        let folder = folder::path_of_url(path)?;
        Self::builder(&folder).local(is_local).open()
    }

    pub(crate) fn url(&self) -> String {
        format!("file:{}", self.shared.folder.path().display())
    }

    #[cfg(test)]
    fn of_boot(folder: &Path, boot: Boot) -> Result<Self> {
        Self::open(Folder::open(folder, Locality::Known)?, boot)
    }

    fn open(folder: Folder, boot: Boot) -> Result<Self> {
        let runtime = background::start()?;
        let _entered = runtime.enter();
        let (process, inbox) = Process::join(&folder.members())?;

        let shared = Arc::new(Shared {
            folder,
            boot,
            process: RwLock::new(Arc::new(process)),
            wakers: Wakers::default(),
            flocks: Mutex::default(),
            flock_waiters: FlockWaiters::default(),
            transaction_locks: NameLocks::default(),
        });
        let listener = Mutex::new(listen(&shared, inbox));
        Ok(Self { shared, listener })
    }

    async fn poll(&self, claim: &Claim) -> Result<Situation> {
        let owned = claim.clone();
        let step =
            move |shared: &Shared, transaction: &mut _| protocol::poll(shared, transaction, &owned);
        let situation = transact(&self.shared, &claim.name, Missing::Keep, step).await?;
        Ok(situation.unwrap_or(Situation::Decided(Standing::Gone)))
    }

    async fn wait_for_flock(&self, claim: &Claim) -> Result<FlockGuard> {
        let folder = &self.shared.folder;
        let at = folder.lock_path(&claim.name);
        let mode = FlockMode::of(claim.share);
        self.shared.flock_waiters.wait(folder, &at, mode).await
    }

    /// Joins again if another program deleted the FIFO of this process. To the other processes, all
    /// its claims are gone.
    fn keep_listed(&self) -> Result<()> {
        if self.shared.process.read().is_listed() {
            return Ok(());
        }
        // One thread joins for all: a claim that enters under an id that is replaced at once would
        // count as dead.
        let mut listener = self.listener.lock();
        if self.shared.process.read().is_listed() {
            return Ok(());
        }

        self.shared.folder.open_again()?;
        let _entered = background::handle().enter();
        let (process, inbox) = Process::join(&self.shared.folder.members())?;
        *self.shared.process.write() = Arc::new(process);
        std::mem::replace(&mut *listener, listen(&self.shared, inbox)).abort();
        self.shared.wakers.wake_all();
        Ok(())
    }
}

/// The inbox closes with the store. The other processes then see this one as dead.
impl Drop for File {
    fn drop(&mut self) {
        self.listener.lock().abort();
    }
}

#[async_trait]
impl Store for File {
    fn guarantees(&self) -> Guarantees {
        Guarantees {
            fifo: true,
            tokens: true,
            shares: true,
            lease_expiry: false,
            crash: CrashDetection::Immediate,
        }
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        self.keep_listed()?;
        let owned = claim.clone();
        let step = move |shared: &Shared, transaction: &mut _| {
            protocol::enter(shared, transaction, &owned, on_contention)
        };

        let standing = transact(&self.shared, &claim.name, Missing::Make, step).await?;
        Ok(Entered {
            standing: standing.expect("a missing queue file was made"),
            lease: Duration::MAX,
        })
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        let waker = self.shared.wakers.register(claim.id);
        loop {
            // No wake-up is missed from here on.
            let woken = waker.woken();
            match self.poll(claim).await? {
                Situation::Decided(standing) if standing != seen => return Ok(standing),
                Situation::Behind { ahead, .. } | Situation::BlockedExternally { ahead }
                    if seen != (Standing::Queued { ahead }) =>
                {
                    return Ok(Standing::Queued { ahead });
                }
                Situation::Decided(_) => woken.await,
                Situation::Behind { peers, .. } => {
                    let mut deaths: FuturesUnordered<_> =
                        peers.into_iter().map(Peer::died).collect();
                    tokio::select! {
                        () = woken => {}
                        Some(died) = deaths.next() => died?,
                    }
                }
                Situation::BlockedExternally { .. } => {
                    tokio::select! {
                        () = woken => {}
                        flock = self.wait_for_flock(claim) => {
                            self.shared.flocks.lock().insert(claim.id, flock?);
                        }
                    }
                }
            }
        }
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        self.keep_listed()?;
        self.shared.process.read().touch();

        let mut replies = Vec::with_capacity(claims.len());
        for claim in claims {
            let id = claim.id;
            let step = move |shared: &Shared, transaction: &mut _| {
                Ok(protocol::renew(shared, transaction, id))
            };
            let is_present = transact(&self.shared, &claim.name, Missing::Keep, step).await?;
            replies.push((is_present == Some(true)).then_some(Duration::MAX));
        }
        Ok(replies)
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        let owned = claim.clone();
        let step = move |shared: &Shared, transaction: &mut _| {
            protocol::leave(shared, transaction, &owned)
        };
        let was_present = transact(&self.shared, &claim.name, Missing::Keep, step).await;

        // The file is unlocked even if the entry could not be removed.
        self.shared.flocks.lock().remove(&claim.id);
        Ok(was_present?.unwrap_or(false))
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions::default().with_inheritable_fds(self)
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        let owned = name.clone();
        let step = move |shared: &Shared, transaction: &mut _| {
            protocol::inspect(shared, transaction, owned)
        };
        let found = transact(&self.shared, name, Missing::Keep, step).await?;
        let mut lock_state = found.unwrap_or_else(|| LockState {
            name: name.clone(),
            entries: Vec::new(),
            last_token: None,
            external_holders: Vec::new(),
            servers: Vec::new(),
        });

        let mut holders = flock::flock_holders(&self.shared.folder.lock_path(name));
        let is_queued = |pid| lock_state.entries.iter().any(|entry| entry.info.pid == pid);
        holders.retain(|holder| !is_queued(holder.pid));
        lock_state.external_holders = holders;
        Ok(lock_state)
    }

    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let mut names = Vec::new();
        for name in self.shared.folder.names()? {
            if names.len() == count_max {
                break;
            }
            if !name.as_str().starts_with(prefix) {
                continue;
            }

            match self.inspect(&name).await {
                Ok(lock_state) if lock_state.entries.is_empty() => {}
                // Inspecting a damaged queue reports the damage. It does not hide the other names.
                Ok(_) => names.push(name),
                Err(error) if error.is_damaged() => names.push(name),
                Err(error) => return Err(error),
            }
        }
        Ok(names)
    }
}

impl InheritableFds for File {
    fn inheritable_fds(&self, claim: &Claim) -> Result<Vec<OwnedFd>> {
        let mut descriptors = vec![self.shared.process.read().inheritable_fd()?];
        if let Some(flock) = self.shared.flocks.lock().get(&claim.id) {
            let at = self.shared.folder.lock_path(&claim.name);
            descriptors.push(flock.inheritable_fd(&at)?);
        }
        Ok(descriptors)
    }
}

/// Returns whether the settings of a URL are `local=yes`.
fn states_local(settings: &str) -> Result<bool> {
    const HELP: &str =
        "write file:/folder?local=yes; a folder with a ? in its name cannot be written as a URL";

    let settings = Settings::parse(settings, "file", &["local"]);
    match settings.map_err(|error| error.help(HELP))?.get("local") {
        Some("yes") => Ok(true),
        _ => Err(Error::invalid("the only value of the setting local is yes").help(HELP)),
    }
}

/// The state that the claims of one open store share.
#[derive(Debug)]
struct Shared {
    folder: Folder,
    boot: Boot,
    process: RwLock<Arc<Process>>,
    wakers: Wakers,
    /// The lock files that claims of this process have locked, from just before the grant until
    /// they leave.
    flocks: Mutex<HashMap<ClaimId, FlockGuard>>,
    flock_waiters: FlockWaiters,
    transaction_locks: NameLocks,
}

impl Shared {
    fn own_process(&self) -> ProcessId {
        self.process.read().id()
    }
}

/// Wakes the claims that other processes name in the inbox.
fn listen(shared: &Arc<Shared>, inbox: Inbox) -> AbortHandle {
    let shared = Arc::downgrade(shared);
    let task = async move {
        loop {
            let wakeups = inbox.read_wakeups().await;
            let Some(shared) = shared.upgrade() else {
                return;
            };
            match wakeups {
                Wakeups::Claims(ids) => ids.iter().for_each(|id| shared.wakers.wake(*id)),
                Wakeups::Overflow => shared.wakers.wake_all(),
            }
        }
    };
    background::handle().spawn(task).abort_handle()
}

/// A file store that is not open yet.
#[must_use]
#[derive(Clone, Debug)]
pub struct FileBuilder {
    folder: PathBuf,
    locality: Locality,
}

impl FileBuilder {
    /// States that the folder's file system is local to this machine.
    ///
    /// This is for a file system that leasehold does not know, FUSE for example. Do not state it of
    /// a file system that several machines use: each of them would grant the lock. Network file
    /// systems that leasehold knows are refused in any case.
    pub fn local(mut self, is_local: bool) -> Self {
        self.locality = if is_local {
            Locality::Stated
        } else {
            Locality::Known
        };
        self
    }

    /// Opens the store.
    ///
    /// # Errors
    /// As [`File::at`].
    pub fn open(self) -> Result<File> {
        let boot = counter::this_boot()?;
        File::open(Folder::open(&self.folder, self.locality)?, boot)
    }
}

#[cfg(test)]
mod tests;
