//! The store on one machine: a folder, known to no server.
//!
//! The line of a lock is a file of tickets, edited under a short lock. Only the process that receives a grant can take
//! the flock(2) that goes with it, so a grant is made by its receiver: whoever leaves wakes those whose turn it is, and
//! they write themselves down as holders. Everybody watches, through the kernel, the life of the one before him.
//!
//! Absent on purpose: time-outs, polling, and any lease: a claim ends when it leaves or its process ends.

mod counter;
mod directory;
mod entry;
mod filesystem;
mod flock;
mod folder;
mod io_error;
mod names;
mod proc_locks;
mod process;
mod protocol;
mod queue_file;
mod touch;
mod transaction;
mod wakers;
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
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::url::Settings;
use crate::runtime::background;
use crate::store::{Extensions, InheritableFds};
use crate::{
    Claim, ClaimId, CrashDetection, Entered, Error, Guarantees, LockState, Name, OnContention,
    Result, Standing, Store, Token,
};
use counter::Boot;
use flock::{FlockGuard, FlockMode, FlockWaiters};
use folder::Folder;
use io_error::io_error;
use process::{Inbox, Peer, Process, ProcessId, Wakeups};
use protocol::Situation;
use queue_file::{Missing, Transaction};
use transaction::NameLocks;

pub(crate) use filesystem::{Locality, check_local};

/// Locks between the processes of one machine, kept in a folder of a local disk.
///
/// `NAME.lock` in it is what flock(1) may lock too: both keep each other out.
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

#[derive(Debug)]
struct Shared {
    folder: Folder,
    boot: Boot,
    process: RwLock<Arc<Process>>,
    /// Claims of this process that somebody listens for.
    wakers: Mutex<HashMap<ClaimId, Arc<Notify>>>,
    /// The files that this process's claims keep locked, from just before a grant until leaving.
    flocks: Mutex<HashMap<ClaimId, FlockGuard>>,
    flock_waiters: FlockWaiters,
    transaction_locks: NameLocks,
}

impl File {
    /// Opens a folder, making it, for this user alone, if it is missing.
    ///
    /// # Errors
    /// [`is_denied`](Error::is_denied) if it cannot be written, or belongs to neither this user nor root and lets neither
    /// this user's groups nor others write; [`is_unsupported`](Error::is_unsupported) if it is not on a file system that
    /// is known to be local; [`is_unavailable`](Error::is_unavailable) if the disk is full.
    pub fn at(folder: &Path) -> Result<Self> {
        Self::builder(folder).open()
    }

    /// Sets up a store before it is opened.
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("leasehold-builder-{}", std::process::id()));
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

    /// As [`at`](Self::at), with the part of a `file:` URL after the colon; an empty path is the user's state folder.
    pub(crate) fn at_url_path(url: &str) -> Result<Self> {
        let (path, is_local) = match url.split_once('?') {
            None => (url, false),
            Some((path, settings)) => (path, states_local(settings)?),
        };
        Self::builder(&path_of_url(path)?).local(is_local).open()
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
            wakers: Mutex::default(),
            flocks: Mutex::default(),
            flock_waiters: FlockWaiters::default(),
            transaction_locks: NameLocks::default(),
        });
        let listening = Mutex::new(listen(&shared, inbox));
        Ok(Self {
            shared,
            listener: listening,
        })
    }

    /// Joins anew if an outside hand deleted this process's FIFO: to the others, all it had is gone.
    fn keep_listed(&self) -> Result<()> {
        if self.shared.process.read().is_listed() {
            return Ok(());
        }
        // One joins for all: whoever entered as a member that is replaced at once would count as dead.
        let mut listening = self.listener.lock();
        if self.shared.process.read().is_listed() {
            return Ok(());
        }
        self.shared.folder.open_again()?;
        let _entered = background::handle().enter();
        let (process, inbox) = Process::join(&self.shared.folder.members())?;
        *self.shared.process.write() = Arc::new(process);
        std::mem::replace(&mut *listening, listen(&self.shared, inbox)).abort();
        self.shared.wake_all();
        Ok(())
    }
}

/// A file store that is not open yet.
#[must_use]
#[derive(Clone, Debug)]
pub struct FileBuilder {
    folder: PathBuf,
    locality: Locality,
}

impl FileBuilder {
    /// States whether the folder's file system is local to this machine, for one that leasehold does not know; FUSE is
    /// among them. A file system that several machines use must not be stated local: each of them would grant the lock.
    ///
    /// Network file systems that leasehold knows are refused in any case.
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
        let boot = this_boot()?;
        File::open(Folder::open(&self.folder, self.locality)?, boot)
    }
}

/// The inbox closes with the store; others then see this member as dead.
impl Drop for File {
    fn drop(&mut self) {
        self.listener.lock().abort();
    }
}

fn listen(shared: &Arc<Shared>, inbox: Inbox) -> AbortHandle {
    let shared = Arc::downgrade(shared);
    let task = async move {
        loop {
            let wakeups = inbox.read_wakeups().await;
            let Some(shared) = shared.upgrade() else {
                return;
            };
            match wakeups {
                Wakeups::Claims(ids) => ids.iter().for_each(|id| shared.wake_peer(*id)),
                Wakeups::Overflow => shared.wake_all(),
            }
        }
    };
    background::handle().spawn(task).abort_handle()
}

impl Shared {
    fn own_process(&self) -> ProcessId {
        self.process.read().id()
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
        let theirs = claim.clone();
        let enter = move |shared: &Shared, transaction: &mut Transaction| {
            shared.enter(transaction, &theirs, on_contention)
        };
        let standing = self
            .shared
            .transact(&claim.name, Missing::Make, enter)
            .await?;
        Ok(Entered {
            standing: standing.expect("a missing line was made"),
            lease: Duration::MAX,
        })
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        let waker = self.shared.waker(claim.id);
        loop {
            // From here on no ring is missed.
            let woken = waker.woken();
            let theirs = claim.clone();
            let evaluate = move |shared: &Shared, transaction: &mut Transaction| {
                shared.evaluate(transaction, &theirs)
            };
            let situation = self
                .shared
                .transact(&claim.name, Missing::Keep, evaluate)
                .await?;
            match situation.unwrap_or(Situation::Decided(Standing::Gone)) {
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
                    let at = self.shared.folder.lock_path(&claim.name);
                    tokio::select! {
                        () = woken => {}
                        flock = self.shared.flock_waiters.wait(&self.shared.folder, &at, FlockMode::of(claim.share)) => {
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
            let there = move |shared: &Shared, transaction: &mut Transaction| {
                Ok(shared.renew(transaction, id))
            };
            let there = self
                .shared
                .transact(&claim.name, Missing::Keep, there)
                .await?;
            replies.push((there == Some(true)).then_some(Duration::MAX));
        }
        Ok(replies)
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        let theirs = claim.clone();
        let leave = move |shared: &Shared, transaction: &mut Transaction| {
            shared.leave(transaction, &theirs)
        };
        let was_there = self
            .shared
            .transact(&claim.name, Missing::Keep, leave)
            .await;
        // Whatever became of the ticket, the file does not stay locked.
        self.shared.flocks.lock().remove(&claim.id);
        Ok(was_there?.unwrap_or(false))
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions::default().with_inheritable_fds(self)
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        let its = name.clone();
        let queue = move |shared: &Shared, transaction: &mut Transaction| {
            shared.queue_file(transaction, its)
        };
        let queue = self.shared.transact(name, Missing::Keep, queue).await?;
        let nobody = LockState {
            name: name.clone(),
            entries: Vec::new(),
            last_token: None::<Token>,
            external_holders: Vec::new(),
            servers: Vec::new(),
        };
        let mut queue = queue.unwrap_or(nobody);
        queue.external_holders = proc_locks::flock_holders(&self.shared.folder.lock_path(name));
        queue.external_holders.retain(|external_holder| {
            queue
                .entries
                .iter()
                .all(|entry| entry.info.pid != external_holder.pid)
        });
        Ok(queue)
    }

    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let mut names = Vec::new();
        for name in self
            .shared
            .folder
            .names()?
            .into_iter()
            .filter(|name| name.as_str().starts_with(prefix))
        {
            if names.len() == count_max {
                break;
            }
            match self.inspect(&name).await {
                Ok(queue) if queue.entries.is_empty() => {}
                // Whoever looks at a damaged line hears what is wrong with it; the others are listed all the same.
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
        let mut anchors = vec![self.shared.process.read().inheritable_fd()?];
        if let Some(flock) = self.shared.flocks.lock().get(&claim.id) {
            anchors.push(flock.inheritable_fd(&self.shared.folder.lock_path(&claim.name))?);
        }
        Ok(anchors)
    }
}

/// Whether the settings of a URL are `local=yes`.
fn states_local(settings: &str) -> Result<bool> {
    const HELP: &str =
        "write file:/folder?local=yes; a folder with a ? in its name cannot be written as a URL";
    let settings = Settings::parse(settings, "file", &["local"]);
    match settings.map_err(|error| error.help(HELP))?.get("local") {
        Some("yes") => Ok(true),
        _ => Err(Error::invalid("the setting local has no value but yes").help(HELP)),
    }
}

/// The folder that a URL names.
fn path_of_url(path: &str) -> Result<PathBuf> {
    let path = path
        .strip_prefix("//localhost/")
        .map_or(path, |_| &path["//localhost".len()..]);
    match (path, path.strip_prefix("//")) {
        ("", _) => Folder::default_path(),
        (path, _) if path.starts_with('~') => Err(Error::invalid(
            "only a shell expands ~, and only at the beginning of a word".to_owned(),
        )
        .help("write file:/home/user/folder, or file:./~ for a folder that is called so")),
        (_, Some(absolute)) if absolute.starts_with('/') => Ok(PathBuf::from(absolute)),
        (_, Some(host)) => {
            let host = host.split('/').next().unwrap_or_default();
            Err(Error::invalid(format!(
                "file: is a folder of this machine, and {host:?} reads as another"
            ))
            .help("write file:/some/folder"))
        }
        (path, None) => Ok(PathBuf::from(path)),
    }
}

/// The kernel's name for the present boot.
fn this_boot() -> Result<Boot> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let text =
        std::fs::read_to_string(PATH).map_err(|error| io_error(error, "read", Path::new(PATH)))?;
    let boot = uuid::Uuid::parse_str(text.trim())
        .map_err(|_| Error::unsupported(format!("{PATH} holds no boot id")))?;
    Ok(boot.into_bytes())
}

#[cfg(test)]
mod tests;
