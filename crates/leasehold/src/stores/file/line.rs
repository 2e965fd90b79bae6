//! A line file: who holds one lock and who waits for it, edited under a short lock on the file itself.

use std::fs::{File, Metadata};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::directory::Location;
use super::fence::{Boot, FENCE_LEN, Fence, Found};
use super::folder::Folder;
use super::gate::is_at;
use super::member::MemberId;
use super::seats::{Seat, stirred, watched};
use super::ticket::{TICKET_LEN, Ticket};
use super::touch::touch;
use super::trouble::trouble;
use crate::{Claim, ClaimId, Error, Result, Share, Standing, Token, admitted};

/// A longer file is cut when its line is empty.
const IDLE_LEN_MAX: u64 = 64 * 1024;
/// How often the file's lock is tried before a thread is sent to sleep on it: editing takes microseconds.
const TRIES_MAX: u32 = 20;

/// An open line file, not yet locked.
#[derive(Debug)]
pub(super) struct LineFile {
    file: File,
    at: Location,
}

/// Whether a missing file is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Make,
    Leave,
}

impl LineFile {
    /// `None` if there is no such file and none is to be made.
    pub(super) fn open(folder: &Folder, at: Location, missing: Missing) -> Result<Option<Self>> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK;
        let opened = match missing {
            Missing::Make => folder.open_or_make_file(&at, flags),
            Missing::Leave => at.open(flags),
        };
        match opened {
            Ok(file) => Ok(Some(Self { file: File::from(file), at })),
            Err(Errno::NOENT) if missing == Missing::Leave => Ok(None),
            Err(error) => Err(trouble(error, "open the line file", &at.path())),
        }
    }

    /// Locks without sleeping; gives the file back if somebody edits it for longer than editing takes.
    pub(super) fn try_lock(self) -> Result<Result<Locked, Self>> {
        for _ in 0..TRIES_MAX {
            match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Ok(Locked(self))),
                Err(Errno::WOULDBLOCK) => std::thread::yield_now(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(trouble(error, "lock the line file", &self.at.path())),
            }
        }
        Ok(Err(self))
    }

    /// Locks, sleeping until it can.
    pub(super) fn lock(self) -> Result<Locked> {
        loop {
            match flock(&self.file, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(Locked(self)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(trouble(error, "lock the line file", &self.at.path())),
            }
        }
    }
}

/// A line file under its lock.
#[derive(Debug)]
pub(super) struct Locked(LineFile);

impl Locked {
    /// Reads the line. `None` if the file was deleted between opening and locking it: open it again.
    pub(super) fn read(self, boot: Boot) -> Result<Option<Edit>> {
        let LineFile { file, at } = self.0;
        let about = file.metadata().map_err(|error| trouble(error, "look at", &at.path()))?;
        if !is_at(&about, &at)? {
            return Ok(None);
        }
        let bytes = read_all(&file, &about, &at)?;
        let Opened { fence, worn, booted } = open_fence(&bytes, boot, &at)?;
        let slots = bytes.get(FENCE_LEN..).unwrap_or_default();
        let (tickets, torn) = read_tickets(slots);
        if let Some(torn) = torn.first().filter(|_| !booted) {
            let path = at.path();
            return Err(Error::damaged(format!("the ticket in slot {torn} of {} is torn", path.display()))
                .remedy(remedy(&path)));
        }
        let len = bytes.len() as u64;
        let mut edit = Edit { file, at, fence, worn, boot, torn, len, tickets, before: Vec::new() };
        edit.before = edit.seats();
        Ok(Some(edit))
    }
}

/// The counter, and what became of it.
struct Opened {
    fence: Fence,
    /// It must be written anew before it is used.
    worn: bool,
    /// It is of another boot: power may have been lost, and tickets torn.
    booted: bool,
}

fn open_fence(bytes: &[u8], boot: Boot, at: &Location) -> Result<Opened> {
    let opened = |fence: Fence, worn| Ok(Opened { booted: fence.boot() != boot, fence, worn });
    match Fence::read(bytes) {
        Found::Fresh => opened(Fence::fresh(boot), true),
        Found::Whole(fence) if fence.boot() == boot => opened(fence, false),
        Found::Whole(fence) | Found::Half(fence) => opened(fence.restarted(), true),
        Found::Newer(version) => {
            let path = at.path();
            let what = format!("{} is of version {version} of the format, newer than this program", path.display());
            Err(Error::unsupported(what).remedy("use the newer leasehold everywhere on this machine"))
        }
        Found::Torn => {
            let path = at.path();
            Err(Error::damaged(format!("the counter in {} is torn", path.display())).remedy(remedy(&path)))
        }
        Found::Foreign => Err(Error::damaged(format!("{} is not a line file of leasehold", at.path().display()))
            .remedy("move it away, or choose another folder")),
    }
}

fn remedy(path: &Path) -> String {
    format!("stop everybody who uses this lock, then remove {}: tokens go on from the clock", path.display())
}

fn read_all(file: &File, about: &Metadata, at: &Location) -> Result<Vec<u8>> {
    if !about.is_file() {
        return Err(Error::damaged(format!("{} is not a regular file", at.path().display())).remedy("remove it"));
    }
    let read = |len: u64| {
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut bytes, 0).map(|()| bytes).map_err(|error| trouble(error, "read", &at.path()))
    };
    if about.len() > IDLE_LEN_MAX {
        // Another's file may be larger than the memory: no more is read of it than shows whose it is.
        let head = read(FENCE_LEN as u64)?;
        if !matches!(Fence::read(&head), Found::Whole(_) | Found::Half(_)) {
            return Ok(head);
        }
    }
    read(about.len())
}

/// The tickets in use, and the slots of those that are torn or cut off: whose they were is not known.
///
/// Tickets are written whole, so it takes the loss of power to tear one, and then its owner is gone as well. The tickets of
/// another boot are read like all others: their members tell best who is dead, as some kinds of container have a boot id
/// of their own.
fn read_tickets(slots: &[u8]) -> (Vec<Ticket>, Vec<usize>) {
    let (mut tickets, mut torn) = (Vec::new(), Vec::new());
    for (slot, bytes) in slots.chunks(TICKET_LEN).enumerate() {
        match Ticket::read(bytes, slot) {
            Ok(ticket) => tickets.extend(ticket),
            Err(_) => torn.push(slot),
        }
    }
    tickets.sort_unstable_by_key(Ticket::place);
    (tickets, torn)
}

/// A line being edited. Every change is written at once, so that a process that is killed leaves a sound line.
pub(super) struct Edit {
    file: File,
    at: Location,
    fence: Fence,
    worn: bool,
    boot: Boot,
    /// Slots that the loss of power has torn, to be freed before anything is written.
    torn: Vec<usize>,
    len: u64,
    /// In order of arrival.
    tickets: Vec<Ticket>,
    before: Vec<Seat>,
}

impl Edit {
    pub(super) fn tickets(&self) -> &[Ticket] {
        &self.tickets
    }

    pub(super) fn position(&self, id: ClaimId) -> Option<usize> {
        self.tickets.iter().position(|ticket| ticket.id() == id)
    }

    /// How many from the front fit.
    pub(super) fn admitted(&self) -> usize {
        admitted(self.tickets.iter().map(Ticket::share))
    }

    /// Whether one more with this share would be granted at once.
    pub(super) fn has_room_for(&self, share: Share) -> bool {
        admitted(self.tickets.iter().map(Ticket::share).chain([share])) > self.tickets.len()
    }

    pub(super) fn standing(&self, at: usize) -> Standing {
        match self.tickets[at].token() {
            Some(token) => Standing::Held { token },
            None => Standing::Queued { ahead: u32::try_from(at).unwrap_or(u32::MAX) },
        }
    }

    /// The token given last, if any was.
    pub(super) fn last(&self) -> Option<Token> {
        Token::new(self.fence.last()).filter(|_| !self.fence.is_fresh())
    }

    /// Whether [`mint`](Self::mint) would have to wait for the disk.
    pub(super) fn needs_sync(&self) -> bool {
        self.worn || self.fence.is_spent()
    }

    /// The next token.
    pub(super) fn mint(&mut self) -> Result<Token> {
        self.settle()?;
        if self.fence.is_spent() {
            self.reserve()?;
        }
        let token = self.fence.mint(&self.file).map_err(|error| trouble(error, "write", &self.at.path()))?;
        Ok(Token::new(token).expect("counters begin above zero"))
    }

    /// Puts a claim at the end, granted already if it has a token; the position it got.
    pub(super) fn append(&mut self, claim: &Claim, member: MemberId, token: Option<Token>) -> Result<usize> {
        self.settle()?;
        let place = self.tickets.last().map_or(0, Ticket::place) + 1;
        let mut ticket = Ticket::new(claim, member, self.free_slot(), place);
        if let Some(token) = token {
            ticket.grant(token);
        }
        self.write(&ticket)?;
        self.len = self.len.max(offset_of(ticket.slot + 1));
        self.tickets.push(ticket);
        Ok(self.tickets.len() - 1)
    }

    pub(super) fn grant(&mut self, at: usize, token: Token) -> Result<()> {
        self.change(at, |ticket| ticket.grant(token))
    }

    pub(super) fn reshare(&mut self, at: usize, share: Share) -> Result<()> {
        self.change(at, |ticket| ticket.set_share(share))
    }

    pub(super) fn remove(&mut self, at: usize) -> Result<()> {
        self.free(self.tickets[at].slot)?;
        self.tickets.remove(at);
        Ok(())
    }

    /// Removes all tickets of a member that is dead.
    pub(super) fn bury(&mut self, member: MemberId) -> Result<()> {
        while let Some(at) = self.tickets.iter().position(|ticket| ticket.member() == member) {
            self.remove(at)?;
        }
        Ok(())
    }

    /// Whose life matters to a waiter: the one who waits ahead of him; for the first who waits, all who hold.
    pub(super) fn watched(&self, at: usize) -> Vec<MemberId> {
        watched(&self.seats(), at)
    }

    /// Those whose turn it is.
    pub(super) fn due(&self) -> Vec<(MemberId, ClaimId)> {
        let due = self.tickets[..self.admitted()].iter().filter(|ticket| ticket.token().is_none());
        due.map(|ticket| (ticket.member(), ticket.id())).collect()
    }

    /// Keeps the file from looking abandoned.
    pub(super) fn touch(&self) {
        touch(&self.file);
    }

    /// Unlocks; whom to wake, as their claim may be granted or they must watch somebody else than before.
    pub(super) fn close(self) -> Vec<(MemberId, ClaimId)> {
        if self.tickets.is_empty() && self.len > IDLE_LEN_MAX {
            // The slots are free; a file that stays long costs room and nothing else.
            let _ = self.file.set_len(FENCE_LEN as u64);
        }
        // Said aloud, as a child that was forked meanwhile has the file open too. Closing does the rest.
        let _ = flock(&self.file, FlockOperation::Unlock);
        stirred(&self.before, &self.seats())
    }

    /// Writes a counter anew that cannot be gone on with as it is.
    fn settle(&mut self) -> Result<()> {
        if self.worn {
            for slot in std::mem::take(&mut self.torn) {
                self.free(slot)?;
            }
            self.sync_folder()?;
            self.fence.move_to(self.boot);
            self.reserve()?;
            self.worn = false;
        }
        Ok(())
    }

    fn reserve(&mut self) -> Result<()> {
        self.fence.reserve(&self.file).map_err(|error| trouble(error, "write", &self.at.path()))
    }

    /// So that the file itself is still there after power loss.
    fn sync_folder(&self) -> Result<()> {
        self.at.sync_parent().map_err(|error| trouble(error, "sync the folder of", &self.at.path()))
    }

    /// A place of zero is a free slot.
    fn free(&self, slot: usize) -> Result<()> {
        let freed = self.file.write_all_at(&[0; TICKET_LEN], offset_of(slot));
        freed.map_err(|error| trouble(error, "write", &self.at.path()))
    }

    fn free_slot(&self) -> usize {
        let mut used: Vec<usize> = self.tickets.iter().map(|ticket| ticket.slot).collect();
        used.sort_unstable();
        used.iter().enumerate().find(|(at, slot)| at != *slot).map_or(used.len(), |(at, _)| at)
    }

    fn change(&mut self, at: usize, change: impl FnOnce(&mut Ticket)) -> Result<()> {
        let mut ticket = self.tickets[at];
        change(&mut ticket);
        self.write(&ticket)?;
        self.tickets[at] = ticket;
        Ok(())
    }

    fn write(&self, ticket: &Ticket) -> Result<()> {
        let written = self.file.write_all_at(&ticket.to_bytes(), offset_of(ticket.slot));
        written.map_err(|error| trouble(error, "write", &self.at.path()))
    }

    fn seats(&self) -> Vec<Seat> {
        let seat = |ticket: &Ticket| Seat {
            id: ticket.id(),
            member: ticket.member(),
            share: ticket.share(),
            held: ticket.token().is_some(),
        };
        self.tickets.iter().map(seat).collect()
    }
}

fn offset_of(slot: usize) -> u64 {
    (FENCE_LEN + slot * TICKET_LEN) as u64
}
