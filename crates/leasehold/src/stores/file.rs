//! The store on one machine: a folder, known to no server.
//!
//! The line of a lock is a file of tickets, edited under a short lock. Only the process that receives a grant can take
//! the flock(2) that goes with it, so a grant is made by its receiver: whoever leaves wakes those whose turn it is, and
//! they write themselves down as holders. Everybody watches, through the kernel, the life of the one before him.
//!
//! Absent on purpose: time-outs, polling, and any lease: a claim ends when it leaves or its process ends.

mod bells;
mod conduct;
mod directory;
mod editing;
mod fence;
mod filesystem;
mod folder;
mod gate;
mod line;
mod member;
mod names;
mod seats;
mod strangers;
mod ticket;
mod touch;
mod trouble;

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

use crate::{
    Claim, ClaimId, Crash, Entered, Error, Line, Name, Patience, Promises, Result, Standing, Store, Token, background,
};
use conduct::View;
use editing::Turns;
use fence::Boot;
use folder::Folder;
use gate::{Key, Porter, Turn};
use line::{Edit, Missing};
use member::{Inbox, Member, MemberId, Peer, Rung};
use trouble::trouble;

pub(crate) use filesystem::{Locality, check_local};

/// Locks between the processes of one machine, kept in a folder of a local disk.
///
/// `NAME.lock` in it is what flock(1) may lock too: both keep each other out.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("leasehold-doc-{}", std::process::id()));
/// let store = leasehold::stores::File::at(&folder)?;
/// let locks = leasehold::over(store, "file:")?;
/// locks.mutex("nightly").acquire().await?.release().await?;
/// # drop(locks); std::fs::remove_dir_all(folder).ok(); Ok(()) }
/// ```
#[derive(Debug)]
pub struct File {
    shared: Arc<Shared>,
    listening: Mutex<AbortHandle>,
}

#[derive(Debug)]
struct Shared {
    folder: Folder,
    boot: Boot,
    member: RwLock<Arc<Member>>,
    /// Claims of this process that somebody listens for.
    bells: Mutex<HashMap<ClaimId, Arc<Notify>>>,
    /// The files that this process's claims keep locked, from just before a grant until leaving.
    keys: Mutex<HashMap<ClaimId, Key>>,
    porter: Porter,
    slow: Turns,
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
        FileBuilder { folder: folder.to_owned(), locality: Locality::Known }
    }

    /// As [`at`](Self::at), with the part of a `file:` URL after the colon; an empty path is the user's state folder.
    pub(crate) fn at_url_path(url: &str) -> Result<Self> {
        let (path, settings) = url.split_once('?').map_or((url, None), |(path, settings)| (path, Some(settings)));
        let is_local = match settings {
            None => false,
            Some("local=yes") => true,
            Some(other) => {
                return Err(Error::invalid(format!("file: has no setting {other:?}"))
                    .remedy("the only one is local=yes; a folder with a ? in its name cannot be written as a URL"));
            }
        };
        Self::builder(&path_of_url(path)?).local(is_local).open()
    }

    pub(crate) fn place(&self) -> String {
        format!("file:{}", self.shared.folder.path().display())
    }

    #[cfg(test)]
    fn of_boot(folder: &Path, boot: Boot) -> Result<Self> {
        Self::open(Folder::open(folder, Locality::Known)?, boot)
    }

    fn open(folder: Folder, boot: Boot) -> Result<Self> {
        let runtime = background::start()?;
        let _entered = runtime.enter();
        let (member, inbox) = Member::join(&folder.members())?;
        let shared = Arc::new(Shared {
            folder,
            boot,
            member: RwLock::new(Arc::new(member)),
            bells: Mutex::default(),
            keys: Mutex::default(),
            porter: Porter::default(),
            slow: Turns::default(),
        });
        let listening = Mutex::new(listen(&shared, inbox));
        Ok(Self { shared, listening })
    }

    /// Joins anew if an outside hand deleted this process's FIFO: to the others, all it had is gone.
    fn stay_listed(&self) -> Result<()> {
        if self.shared.member.read().is_listed() {
            return Ok(());
        }
        // One joins for all: whoever entered as a member that is replaced at once would count as dead.
        let mut listening = self.listening.lock();
        if self.shared.member.read().is_listed() {
            return Ok(());
        }
        self.shared.folder.open_again()?;
        let _entered = background::handle().enter();
        let (member, inbox) = Member::join(&self.shared.folder.members())?;
        *self.shared.member.write() = Arc::new(member);
        std::mem::replace(&mut *listening, listen(&self.shared, inbox)).abort();
        self.shared.ring_all();
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
        self.locality = if is_local { Locality::Stated } else { Locality::Known };
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
        self.listening.lock().abort();
    }
}

fn listen(shared: &Arc<Shared>, inbox: Inbox) -> AbortHandle {
    let shared = Arc::downgrade(shared);
    let task = async move {
        loop {
            let rung = inbox.rung().await;
            let Some(shared) = shared.upgrade() else { return };
            match rung {
                Rung::These(ids) => ids.iter().for_each(|id| shared.ring(*id)),
                Rung::Perhaps => shared.ring_all(),
            }
        }
    };
    background::handle().spawn(task).abort_handle()
}

impl Shared {
    fn me(&self) -> MemberId {
        self.member.read().id()
    }
}

#[async_trait]
impl Store for File {
    fn promises(&self) -> Promises {
        Promises { fifo: true, tokens: true, shares: true, expiry: false, crash: Crash::AtOnce }
    }

    async fn enter(&self, claim: &Claim, patience: Patience) -> Result<Entered> {
        self.stay_listed()?;
        let theirs = claim.clone();
        let enter = move |shared: &Shared, edit: &mut Edit| shared.enter(edit, &theirs, patience);
        let standing = self.shared.edit(&claim.name, Missing::Make, enter).await?;
        Ok(Entered { standing: standing.expect("a missing line was made"), lease: Duration::MAX })
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        let bell = self.shared.bell(claim.id);
        loop {
            // From here on no ring is missed.
            let rung = bell.rung();
            let theirs = claim.clone();
            let stand = move |shared: &Shared, edit: &mut Edit| shared.stand(edit, &theirs);
            let view = self.shared.edit(&claim.name, Missing::Leave, stand).await?;
            match view.unwrap_or(View::Is(Standing::Gone)) {
                View::Is(standing) if standing != seen => return Ok(standing),
                View::Behind { ahead, .. } | View::Shut { ahead } if seen != (Standing::Queued { ahead }) => {
                    return Ok(Standing::Queued { ahead });
                }
                View::Is(_) => rung.await,
                View::Behind { peers, .. } => {
                    let mut deaths: FuturesUnordered<_> = peers.into_iter().map(Peer::died).collect();
                    tokio::select! {
                        () = rung => {}
                        Some(died) = deaths.next() => died?,
                    }
                }
                View::Shut { .. } => {
                    let at = self.shared.folder.lock(&claim.name);
                    tokio::select! {
                        () = rung => {}
                        key = self.shared.porter.wait(&self.shared.folder, &at, Turn::of(claim.share)) => {
                            self.shared.keys.lock().insert(claim.id, key?);
                        }
                    }
                }
            }
        }
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        self.stay_listed()?;
        self.shared.member.read().touch();
        let mut answers = Vec::with_capacity(claims.len());
        for claim in claims {
            let id = claim.id;
            let there = move |shared: &Shared, edit: &mut Edit| Ok(shared.renew(edit, id));
            let there = self.shared.edit(&claim.name, Missing::Leave, there).await?;
            answers.push((there == Some(true)).then_some(Duration::MAX));
        }
        Ok(answers)
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        let theirs = claim.clone();
        let leave = move |shared: &Shared, edit: &mut Edit| shared.leave(edit, &theirs);
        let was_there = self.shared.edit(&claim.name, Missing::Leave, leave).await;
        // Whatever became of the ticket, the file does not stay locked.
        self.shared.keys.lock().remove(&claim.id);
        Ok(was_there?.unwrap_or(false))
    }

    fn anchors(&self, claim: &Claim) -> Result<Vec<OwnedFd>> {
        let mut anchors = vec![self.shared.member.read().anchor()?];
        if let Some(key) = self.shared.keys.lock().get(&claim.id) {
            anchors.push(key.anchor(&self.shared.folder.lock(&claim.name))?);
        }
        Ok(anchors)
    }

    async fn look(&self, name: &Name) -> Result<Line> {
        let its = name.clone();
        let line = move |shared: &Shared, edit: &mut Edit| shared.line(edit, its);
        let line = self.shared.edit(name, Missing::Leave, line).await?;
        let nobody = Line {
            name: name.clone(),
            entries: Vec::new(),
            last: None::<Token>,
            strangers: Vec::new(),
            views: Vec::new(),
        };
        let mut line = line.unwrap_or(nobody);
        line.strangers = strangers::holders_of(&self.shared.folder.lock(name));
        line.strangers.retain(|stranger| line.entries.iter().all(|entry| entry.note.pid != stranger.pid));
        Ok(line)
    }

    async fn names(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let mut names = Vec::new();
        for name in self.shared.folder.names()?.into_iter().filter(|name| name.as_str().starts_with(prefix)) {
            if names.len() == count_max {
                break;
            }
            match self.look(&name).await {
                Ok(line) if line.entries.is_empty() => {}
                // Whoever looks at a damaged line hears what is wrong with it; the others are listed all the same.
                Ok(_) => names.push(name),
                Err(error) if error.is_damaged() => names.push(name),
                Err(error) => return Err(error),
            }
        }
        Ok(names)
    }
}

/// The folder that a URL names.
fn path_of_url(path: &str) -> Result<PathBuf> {
    let path = path.strip_prefix("//localhost/").map_or(path, |_| &path["//localhost".len()..]);
    match (path, path.strip_prefix("//")) {
        ("", _) => Folder::default_path(),
        (path, _) if path.starts_with('~') => {
            Err(Error::invalid("only a shell expands ~, and only at the beginning of a word".to_owned())
                .remedy("write file:/home/user/folder, or file:./~ for a folder that is called so"))
        }
        (_, Some(absolute)) if absolute.starts_with('/') => Ok(PathBuf::from(absolute)),
        (_, Some(host)) => {
            let host = host.split('/').next().unwrap_or_default();
            Err(Error::invalid(format!("file: is a folder of this machine, and {host:?} reads as another"))
                .remedy("write file:/some/folder"))
        }
        (path, None) => Ok(PathBuf::from(path)),
    }
}

/// The kernel's name for the present boot.
fn this_boot() -> Result<Boot> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let text = std::fs::read_to_string(PATH).map_err(|error| trouble(error, "read", Path::new(PATH)))?;
    let boot =
        uuid::Uuid::parse_str(text.trim()).map_err(|_| Error::unsupported(format!("{PATH} holds no boot id")))?;
    Ok(boot.into_bytes())
}

#[cfg(test)]
mod tests;
