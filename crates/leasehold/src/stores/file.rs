//! The store on one machine: a folder, known to no server.
//!
//! The line of a lock is a file of tickets, edited under a short lock. Only the process that receives a grant can take
//! the flock(2) that goes with it, so a grant is made by its receiver: whoever leaves wakes those whose turn it is, and
//! they write themselves down as holders. Everybody watches, through the kernel, the life of the one before him.
//!
//! Absent on purpose: time-outs, polling, and any lease: a claim ends when it leaves or its process ends.

mod fence;
mod folder;
mod gate;
mod line;
mod member;
mod names;
mod strangers;
mod ticket;
mod trouble;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::task::AbortHandle;

use crate::{
    Claim, ClaimId, Crash, Entered, Entry, Error, Line, Name, Patience, Promises, Result, Standing, Store, Token,
    background,
};
use fence::Boot;
use folder::Folder;
use gate::{Key, Porter, Turn};
use line::{Edit, LineFile, Locked, Missing};
use member::{Inbox, Member, MemberId, Peer, Rung};
use trouble::trouble;

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

/// Whose turn it is to wait for the line file of a name.
#[derive(Debug, Default)]
struct Turns(Mutex<HashMap<Name, Arc<AsyncMutex<()>>>>);

impl Turns {
    fn turn(&self, name: &Name) -> Arc<AsyncMutex<()>> {
        let mut turns = self.0.lock();
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(name.clone()).or_default())
    }
}

impl File {
    /// Opens a folder, making it, for this user alone, if it is missing.
    ///
    /// # Errors
    /// [`is_denied`](Error::is_denied) if it cannot be written, [`is_unsupported`](Error::is_unsupported) if it is on a
    /// network file system, [`is_unavailable`](Error::is_unavailable) if the disk is full.
    pub fn at(folder: &Path) -> Result<Self> {
        let boot = this_boot()?;
        Self::of_boot(folder, boot)
    }

    /// As [`at`](Self::at), with the part of a `file:` URL after the colon; empty is the user's state folder.
    pub(crate) fn at_url_path(path: &str) -> Result<Self> {
        let path = path.strip_prefix("//localhost/").map_or(path, |_| &path["//localhost".len()..]);
        match (path, path.strip_prefix("//")) {
            ("", _) => Self::at(&Folder::default_path()?),
            (_, Some(absolute)) if absolute.starts_with('/') => Self::at(Path::new(absolute)),
            (_, Some(host)) => {
                let host = host.split('/').next().unwrap_or_default();
                Err(Error::invalid(format!("file: is a folder of this machine, and {host:?} reads as another"))
                    .remedy("write file:/some/folder"))
            }
            (path, None) => Self::at(Path::new(path)),
        }
    }

    pub(crate) fn place(&self) -> String {
        format!("file:{}", self.shared.folder.path().display())
    }

    fn of_boot(folder: &Path, boot: Boot) -> Result<Self> {
        let runtime = background::start()?;
        let _entered = runtime.enter();
        let folder = Folder::open(folder)?;
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
        self.shared.folder.make_members()?;
        let _entered = background::handle().enter();
        let (member, inbox) = Member::join(&self.shared.folder.members())?;
        *self.shared.member.write() = Arc::new(member);
        std::mem::replace(&mut *listening, listen(&self.shared, inbox)).abort();
        self.shared.ring_all();
        Ok(())
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

/// Where a claim stands that waits, and what it waits for.
enum View {
    Is(Standing),
    /// Behind others whose lives matter to it.
    Behind {
        ahead: u32,
        peers: Vec<Peer>,
    },
    /// First, but somebody who is not in the line has the file locked.
    Shut {
        ahead: u32,
    },
}

impl Shared {
    /// Does `work` on a line under its lock, then wakes whom it concerns. `Ok(None)` if there is no line file and none
    /// is to be made.
    ///
    /// Work that need not wait, for another's edit or for the disk, is done in place; else on a thread that may wait.
    async fn edit<T, W>(self: &Arc<Self>, name: &Name, missing: Missing, work: W) -> Result<Option<T>>
    where
        T: Send + 'static,
        W: FnOnce(&Shared, &mut Edit) -> Result<T> + Send + 'static,
    {
        let path = self.folder.line(name);
        if missing == Missing::Make {
            self.folder.make_room(&path)?;
        }
        let Some(line) = LineFile::open(&path, missing)? else { return Ok(None) };
        match line.try_lock()? {
            Ok(locked) => match locked.read(self.boot)? {
                Some(edit) if !edit.needs_sync() => self.finish(edit, work).map(Some),
                Some(edit) => {
                    let shared = Arc::clone(self);
                    apart(move || shared.finish(edit, work)).await.map(Some)
                }
                None => self.edit_apart(name, missing, work).await,
            },
            Err(_busy) => self.edit_apart(name, missing, work).await,
        }
    }

    /// One thread per name and process waits for another's edit, however often it is asked: whoever is stopped in the
    /// middle of one must not use up all threads.
    async fn edit_apart<T, W>(self: &Arc<Self>, name: &Name, missing: Missing, work: W) -> Result<Option<T>>
    where
        T: Send + 'static,
        W: FnOnce(&Shared, &mut Edit) -> Result<T> + Send + 'static,
    {
        let (shared, path) = (Arc::clone(self), self.folder.line(name));
        let turn = self.slow.turn(name).lock_owned().await;
        let wait_and_work = move || {
            let _turn = turn;
            loop {
                let Some(line) = LineFile::open(&path, missing)? else { return Ok(None) };
                if let Some(edit) = line.lock().and_then(|locked: Locked| locked.read(shared.boot))? {
                    return shared.finish(edit, work).map(Some);
                }
            }
        };
        apart(wait_and_work).await
    }

    fn finish<T>(&self, mut edit: Edit, work: impl FnOnce(&Self, &mut Edit) -> Result<T>) -> Result<T> {
        let answer = work(self, &mut edit);
        self.wake(edit.close());
        answer
    }

    fn me(&self) -> MemberId {
        self.member.read().id()
    }

    fn enter(&self, edit: &mut Edit, claim: &Claim, patience: Patience) -> Result<Standing> {
        if let Some(at) = edit.position(claim.id) {
            self.give_back(edit, at, claim)?;
            return Ok(edit.standing(at));
        }
        self.check_kind(edit, claim)?;
        if patience == Patience::Refuse && !edit.has_room_for(claim.share) {
            self.bury_the_dead(edit)?;
        }
        let key = if edit.has_room_for(claim.share) { self.key_for(claim)? } else { None };
        match (key, patience) {
            (Some(key), _) => {
                let token = edit.mint()?;
                edit.append(claim, self.me(), Some(token))?;
                self.keys.lock().insert(claim.id, key);
                Ok(Standing::Held { token })
            }
            (None, Patience::Queue) => {
                let at = edit.append(claim, self.me(), None)?;
                Ok(edit.standing(at))
            }
            (None, Patience::Refuse) => Ok(Standing::Gone),
        }
    }

    /// A claim that is in line already may keep a smaller share.
    fn give_back(&self, edit: &mut Edit, at: usize, claim: &Claim) -> Result<()> {
        let present = edit.tickets()[at].share();
        if present == claim.share {
            return Ok(());
        }
        claim.share.is_part_of(present)?;
        if let Some(key) = self.keys.lock().get_mut(&claim.id) {
            key.share(&self.folder.lock(&claim.name))?;
        }
        edit.reshare(at, claim.share)
    }

    /// One kind and size for a name, as long as anybody alive uses it.
    fn check_kind(&self, edit: &mut Edit, claim: &Claim) -> Result<()> {
        let fits = |edit: &Edit| edit.tickets().first().map_or(Ok(()), |first| claim.share.fits_kind(first.share()));
        if fits(edit).is_err() {
            self.bury_the_dead(edit)?;
        }
        fits(edit)
    }

    fn bury_the_dead(&self, edit: &mut Edit) -> Result<()> {
        let mut members: Vec<MemberId> = edit.tickets().iter().map(ticket::Ticket::member).collect();
        members.sort_unstable();
        members.dedup();
        for member in members {
            if self.peer(member)?.is_none() {
                edit.bury(member)?;
            }
        }
        Ok(())
    }

    /// Another member, or `None` if it is dead; this process is alive, and nobody's peer.
    fn peer(&self, member: MemberId) -> Result<Option<Life>> {
        if member == self.me() {
            return Ok(Some(Life::Mine));
        }
        Ok(Peer::open(&self.folder.members(), member)?.map(Life::Other))
    }

    /// The lock file, locked, if nobody else has it.
    fn key_for(&self, claim: &Claim) -> Result<Option<Key>> {
        let (path, turn) = (self.folder.lock(&claim.name), Turn::of(claim.share));
        let kept = self.keys.lock().remove(&claim.id);
        match kept {
            Some(key) if key.fits(turn) && key.opens(&path)? => Ok(Some(key)),
            _ => Key::take(&path, turn),
        }
    }

    /// Where a claim stands; grants it if its turn has come, and buries whoever stood dead in its way.
    fn stand(&self, edit: &mut Edit, claim: &Claim) -> Result<View> {
        loop {
            let Some(at) = edit.position(claim.id) else { return Ok(View::Is(Standing::Gone)) };
            if edit.tickets()[at].member() != self.me() {
                // It is of a member that this process no longer is, and others may bury it at any time.
                return Ok(View::Is(Standing::Gone));
            }
            if edit.tickets()[at].token().is_some() {
                return Ok(View::Is(edit.standing(at)));
            }
            let ahead = u32::try_from(at).unwrap_or(u32::MAX);
            if at < edit.admitted() {
                let Some(key) = self.key_for(claim)? else { return Ok(View::Shut { ahead }) };
                let token = edit.mint()?;
                edit.grant(at, token)?;
                self.keys.lock().insert(claim.id, key);
                return Ok(View::Is(Standing::Held { token }));
            }
            if let Some(peers) = self.living(edit, at)? {
                return Ok(View::Behind { ahead, peers });
            }
        }
    }

    /// Those whose lives matter to the waiter at `at`; `None` after burying one that was dead.
    fn living(&self, edit: &mut Edit, at: usize) -> Result<Option<Vec<Peer>>> {
        let mut peers = Vec::new();
        for member in edit.watched(at) {
            match self.peer(member)? {
                Some(Life::Other(peer)) => peers.push(peer),
                Some(Life::Mine) => {}
                None => {
                    edit.bury(member)?;
                    return Ok(None);
                }
            }
        }
        Ok(Some(peers))
    }

    fn leave(&self, edit: &mut Edit, claim: &Claim) -> Result<bool> {
        // Unlocked first: the next in line is let in by the ticket, and then finds the file unlocked.
        self.keys.lock().remove(&claim.id);
        let Some(at) = edit.position(claim.id) else {
            // It was broken; whoever did that may have been killed before he rang the next.
            self.wake(edit.due());
            return Ok(false);
        };
        let member = edit.tickets()[at].member();
        edit.remove(at)?;
        self.wake(vec![(member, claim.id)]);
        Ok(true)
    }

    /// Whether a claim of this process is in line. Rings it if its turn has come: whoever should have done so may have
    /// had no descriptor left to do it with.
    fn is_there(&self, edit: &Edit, id: ClaimId) -> bool {
        let Some(at) = edit.position(id) else { return false };
        let ticket = &edit.tickets()[at];
        if ticket.token().is_none() && at < edit.admitted() {
            self.ring(id);
        }
        ticket.member() == self.me()
    }

    fn line(&self, edit: &mut Edit, name: Name) -> Result<Line> {
        let mut entries = Vec::new();
        for (at, ticket) in edit.tickets().iter().enumerate() {
            if self.peer(ticket.member())?.is_some() {
                let (standing, note) = (edit.standing(at), ticket.note());
                entries.push(Entry { id: ticket.id(), share: ticket.share(), standing, note });
            }
        }
        Ok(Line { name, entries, last: edit.last(), strangers: Vec::new() })
    }

    /// Rings claims, in this process or through their members' inboxes.
    fn wake(&self, concerned: Vec<(MemberId, ClaimId)>) {
        let mut others: HashMap<MemberId, Vec<ClaimId>> = HashMap::new();
        for (member, id) in concerned {
            if member == self.me() { self.ring(id) } else { others.entry(member).or_default().push(id) }
        }
        for (member, ids) in others {
            match Peer::open(&self.folder.members(), member) {
                Ok(Some(peer)) => peer.ring(&ids),
                // The dead are buried by whoever watches them.
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "could not wake the next in line"),
            }
        }
    }

    fn ring(&self, id: ClaimId) {
        if let Some(bell) = self.bells.lock().get(&id) {
            bell.notify_waiters();
        }
    }

    fn ring_all(&self) {
        self.bells.lock().values().for_each(|bell| bell.notify_waiters());
    }

    fn bell(&self, id: ClaimId) -> Bell<'_> {
        let rings = Arc::clone(self.bells.lock().entry(id).or_default());
        Bell { shared: self, id, rings }
    }
}

enum Life {
    Mine,
    Other(Peer),
}

/// Hears rings for one claim as long as it lives.
struct Bell<'a> {
    shared: &'a Shared,
    id: ClaimId,
    rings: Arc<Notify>,
}

impl Drop for Bell<'_> {
    fn drop(&mut self) {
        let mut bells = self.shared.bells.lock();
        // One in the table and this one.
        if Arc::strong_count(&self.rings) == 2 {
            bells.remove(&self.id);
        }
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
            let rung = bell.rings.notified();
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
                    let path = self.shared.folder.lock(&claim.name);
                    tokio::select! {
                        () = rung => {}
                        key = self.shared.porter.wait(&path, Turn::of(claim.share)) => {
                            self.shared.keys.lock().insert(claim.id, key?);
                        }
                    }
                }
            }
        }
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        self.stay_listed()?;
        let mut answers = Vec::with_capacity(claims.len());
        for claim in claims {
            let id = claim.id;
            let there = move |shared: &Shared, edit: &mut Edit| Ok(shared.is_there(edit, id));
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
        let nobody = Line { name: name.clone(), entries: Vec::new(), last: None::<Token>, strangers: Vec::new() };
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
            if !self.look(&name).await?.entries.is_empty() {
                names.push(name);
            }
        }
        Ok(names)
    }
}

/// Runs what may wait on a thread that may. It runs to its end even if nobody listens any more.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = background::handle().spawn_blocking(work).await;
    done.unwrap_or_else(|failed| Err(Error::unavailable(format!("a thread of the file store failed: {failed}"))))
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
