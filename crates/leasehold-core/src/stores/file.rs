//! The store on one machine: a folder, without a server.
//!
//! The queue of a lock is a file with an entry for each claim. It is edited under a short flock(2).
//! Only the process that receives a grant can take the flock(2) of `NAME.lock` that belongs to the
//! grant. So each process writes its own grants: a holder that leaves wakes the waiters that fit,
//! and each of them marks its entry as held. Each waiter watches, through the kernel, the process
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
//! | [`builder`] | the settings, and the URL |
//! | [`subscription`] | the changes that observers are notified of |
//! | [`transact`] | runs a step of the protocol under the lock of its queue |
//! | [`housekeeping`] | the removal of the files of free names |
//! | [`protocol`] | the steps: enter, poll, leave, renew, inspect |
//! | [`keepers`] | the processes behind a hold, for people |
//! | [`shared`], [`idle_names`] | what the claims of one open store share |
//! | [`queue_file`] | the queue file: locked, read, changed |
//! | [`flock_waiters`], [`flock`], [`lock_file`] | `NAME.lock`, and waiting for external holders |
//! | [`wakeups`] | the claims to wake after a change |
//! | [`entry`] | one claim in a queue file |
//! | [`process`] | crash detection and the inbox of each process |
//! | [`folder_counter`] | the tokens of all names |
//! | [`kept_files`] | files that stay open between two uses of a name |
//! | [`folder`] | the folder, its files, and the encoding of names |
//! | [`counter`] | the token counter of a lock |
//! | [`record_file`] | the completed jobs of a name |
//!
//! A module uses only modules further down.

mod builder;
mod counter;
mod entry;
mod examination;
mod flock;
mod flock_waiters;
mod folder;
mod folder_counter;
mod housekeeping;
mod idle_names;
mod keepers;
mod kept_files;
mod kinds;
mod lock_file;
mod process;
mod protocol;
mod queue_file;
mod record_file;
mod shared;
mod subscription;
mod transact;
mod wakeups;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::runtime::background;
use crate::store::{
    Cleanup, Extensions, Housekeeping, InheritableFds, Observe, RecordReader, Records, Subscription,
};
use crate::{
    Claim, Completion, CrashRelease, Entered, Guarantees, LockState, Name, OnContention, Record,
    Result, SemaphoreSupport, Standing, Store, Token,
};
use counter::Boot;
use entry::check_label;
use flock::{FlockGuard, FlockMode};
use folder::Folder;
use folder::location::Location;
use keepers::Search;
use process::{Peer, Process};
use protocol::{Missing, Situation, Transaction};
use shared::Shared;
use subscription::QueueWatch;
use transact::{on_blocking_thread, transact, transact_durably, view};

pub use builder::FileBuilder;
pub use kinds::{FILE, SYSTEM};

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
    /// Opens a folder. A missing folder is made for this user alone.
    ///
    /// # Errors
    /// - [`is_invalid`](crate::Error::is_invalid) if its path has white space at an end, or a control
    ///   character, which would name another folder than meant.
    /// - [`is_denied`](crate::Error::is_denied) if the folder cannot be written. Also if it belongs
    ///   to neither this user nor root, and neither this user's groups nor others may write it.
    /// - [`is_unsupported`](crate::Error::is_unsupported) if it is not on a file system that is
    ///   known to be local.
    /// - [`is_unavailable`](crate::Error::is_unavailable) if the disk is full.
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
        FileBuilder::new(folder)
    }

    pub(crate) fn url(&self) -> String {
        format!("file:{}", self.shared.folder().path().display())
    }

    #[cfg(test)]
    fn of_boot(folder: &Path, boot: Boot) -> Result<Self> {
        let folder = Folder::open(folder, crate::local_fs::Locality::Known, None)?;
        let store = Self::open(folder, boot, Duration::from_secs(60))?;
        store.shared.idle_names.keep_files();
        Ok(store)
    }

    fn open(folder: Folder, boot: Boot, records_kept: Duration) -> Result<Self> {
        let runtime = background::start()?;
        let _entered = runtime.enter();
        let folder = Arc::new(folder);
        let (process, inbox) = Process::join(&folder)?;

        let shared = Arc::new(Shared::new(folder, boot, records_kept, process));
        let listener = Mutex::new(shared::listen(&shared, inbox));
        Ok(Self { shared, listener })
    }

    async fn wait_for_flock(&self, claim: &Claim) -> Result<FlockGuard> {
        let at = Location::lock(&self.shared.folder(), &claim.name);
        let mode = FlockMode::of(claim.share);
        self.shared.flock_waiters.wait(&at, mode).await
    }
}

/// The inbox closes with the store. The other processes then see this one as dead. The files of
/// names that this process left free are removed.
impl Drop for File {
    fn drop(&mut self) {
        self.listener.lock().abort();
        housekeeping::finish(&self.shared);
    }
}

#[async_trait]
impl Store for File {
    fn guarantees(&self) -> Guarantees {
        Guarantees {
            fifo: true,
            tokens: true,
            rwlock: true,
            semaphore: SemaphoreSupport::WhileInUse,
            lease_expiry: false,
            cohorts: true,
            crash_release: CrashRelease::Immediate,
        }
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        check_label(&claim.info)?;
        shared::keep_listed(&self.shared, &self.listener)?;
        transact(&self.shared, claim, Missing::Make, move |queue, claim| {
            let standing = queue.enter(claim, on_contention)?;
            let entered = Entered::new(standing, Duration::MAX);
            if standing != Standing::Gone {
                return Ok(entered);
            }
            Ok(entered.with_refused(Some(queue.refusal(&claim.name)?)))
        })
        .await
    }

    async fn queued(&self, claim: &Claim, ahead: u32) -> Result<Standing> {
        let waker = self.shared.wakers.register(claim.id);
        loop {
            // No wake-up is missed from here on.
            let woken = waker.woken();
            match transact(&self.shared, claim, Missing::Keep, Transaction::poll).await? {
                Situation::Decided(standing) => return Ok(standing),
                Situation::Behind { ahead: now, .. }
                | Situation::BlockedExternally { ahead: now }
                    if now != ahead =>
                {
                    return Ok(Standing::Queued { ahead: now });
                }
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

    async fn lost(&self, claim: &Claim, token: Token) -> Result<()> {
        let held = Standing::Held { token };
        let waker = self.shared.wakers.register(claim.id);
        loop {
            // No wake-up is missed from here on.
            let woken = waker.woken();
            match transact(&self.shared, claim, Missing::Keep, Transaction::poll).await? {
                Situation::Decided(standing) if standing == held => woken.await,
                _ => return Ok(()),
            }
        }
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        shared::keep_listed(&self.shared, &self.listener)?;
        self.shared.process.read().touch();

        let mut replies = Vec::with_capacity(claims.len());
        for claim in claims {
            let is_present = transact(&self.shared, claim, Missing::Keep, |queue, claim| {
                Ok(queue.renew(claim))
            })
            .await?;
            replies.push(is_present.then_some(Duration::MAX));
        }
        Ok(replies)
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        let was_present = transact(&self.shared, claim, Missing::Keep, Transaction::leave).await;
        // The file is unlocked even if the entry could not be removed.
        protocol::release_flock(&self.shared, claim);
        was_present
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions {
            inheritable_fds: Some(self),
            housekeeping: Some(self),
            observe: Some(self),
            records: Some(self),
            ..Extensions::default()
        }
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        let folder = self.shared.folder();
        let inspect = || view(&self.shared, name, |queue| queue.inspect(name));
        let (mut lock_state, mut processes) = inspect().await?;
        let lock_path = Location::lock(&folder, name);
        lock_file::check_type(&lock_path)?;
        let mut holders = lock_file::flock_holders(&lock_path);
        if !holders.is_empty() {
            // A claim may have been granted or released since the queue was read.
            (lock_state, processes) = inspect().await?;
            let still = lock_file::flock_holders(&lock_path);
            holders.retain(|holder| still.contains(holder));
        }

        let is_queued = |pid| lock_state.entries.iter().any(|entry| entry.info.pid == pid);
        holders.retain(|holder| !is_queued(holder.pid));
        lock_state.external_holders = holders;

        match Search::needed(&folder, name, &lock_state, &processes) {
            None => Ok(lock_state),
            Some(search) => {
                on_blocking_thread(move || {
                    search.run(&mut lock_state);
                    Ok(lock_state)
                })
                .await
            }
        }
    }

    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let mut names = Vec::new();
        for name in self.shared.folder().names_of_files()? {
            if names.len() == count_max {
                break;
            }
            if !name.as_str().starts_with(prefix) {
                continue;
            }

            match self.inspect(&name).await {
                Ok(lock_state)
                    if lock_state.entries.is_empty() && lock_state.external_holders.is_empty() => {}
                Err(error) if error.is_unavailable() => return Err(error),
                // Inspecting a damaged or forbidden queue reports why. It does not hide the other
                // names.
                Ok(_) | Err(_) => names.push(name),
            }
        }
        Ok(names)
    }
}

#[async_trait]
impl Observe for File {
    async fn subscribe(&self, name: &Name) -> Result<Box<dyn Subscription>> {
        Ok(Box::new(QueueWatch::begin(&self.shared, name).await?))
    }
}

#[async_trait]
impl Housekeeping for File {
    async fn remove_unused(&self) -> Result<Cleanup> {
        let shared = Arc::clone(&self.shared);
        on_blocking_thread(move || housekeeping::remove_unused(&shared)).await
    }
}

#[async_trait]
impl Records for File {
    async fn kept(&self) -> Result<Duration> {
        Ok(self.shared.records_kept)
    }

    async fn record(&self, name: &Name, reader: RecordReader) -> Result<Record> {
        let at = Location::record(&self.shared.folder(), name);
        if reader == RecordReader::Holder {
            record_file::keep(&at)?;
        }
        record_file::read(&at)
    }

    async fn complete(&self, claim: &Claim, completion: &Completion) -> Result<bool> {
        let completion = completion.clone();
        transact_durably(&self.shared, claim, move |transaction, claim| {
            transaction.complete(claim, &completion)
        })
        .await
    }

    async fn list_records(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let mut names = self.shared.folder().names_of_records()?;
        names.retain(|name| name.as_str().starts_with(prefix));
        names.truncate(count_max);
        Ok(names)
    }
}

impl InheritableFds for File {
    fn inheritable_fds(&self, claim: &Claim) -> Result<Vec<OwnedFd>> {
        let mut descriptors = vec![self.shared.process.read().inheritable_fd()?];
        if let Some(flock) = self.shared.flocks.lock().get_mut(&claim.id) {
            let at = Location::lock(&self.shared.folder(), &claim.name);
            descriptors.push(flock.inheritable_fd(&at)?);
        }
        Ok(descriptors)
    }
}

#[cfg(test)]
mod tests;
