//! What is done at a line: entering, standing, leaving, looking. Each is one edit, under the line's lock.

use super::Shared;
use super::gate::{Key, Turn};
use super::line::Edit;
use super::member::{MemberId, Peer};
use super::ticket::Ticket;
use crate::{Claim, ClaimId, Entry, Line, Name, Patience, Result, Standing};

/// Where a claim stands that waits, and what it waits for.
pub(super) enum View {
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
    pub(super) fn enter(&self, edit: &mut Edit, claim: &Claim, patience: Patience) -> Result<Standing> {
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
        let mut members: Vec<MemberId> = edit.tickets().iter().map(Ticket::member).collect();
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
        let (at, turn) = (self.folder.lock(&claim.name), Turn::of(claim.share));
        let kept = self.keys.lock().remove(&claim.id);
        match kept {
            Some(key) if key.fits(turn) && key.opens(&at)? => Ok(Some(key)),
            _ => Key::take(&self.folder, &at, turn),
        }
    }

    /// Where a claim stands; grants it if its turn has come, and buries whoever stood dead in its way.
    pub(super) fn stand(&self, edit: &mut Edit, claim: &Claim) -> Result<View> {
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
                if !self.member.read().is_listed() {
                    // The folder was moved away, and others may hold in the one that has the path now.
                    return Ok(View::Is(Standing::Gone));
                }
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

    pub(super) fn leave(&self, edit: &mut Edit, claim: &Claim) -> Result<bool> {
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

    /// Whether a claim of this process is in line; its files look used from then on.
    pub(super) fn renew(&self, edit: &Edit, id: ClaimId) -> bool {
        let is_there = self.is_there(edit, id);
        if is_there {
            edit.touch();
            if let Some(key) = self.keys.lock().get(&id) {
                key.touch();
            }
        }
        is_there
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

    pub(super) fn line(&self, edit: &mut Edit, name: Name) -> Result<Line> {
        let mut entries = Vec::new();
        for (at, ticket) in edit.tickets().iter().enumerate() {
            if self.peer(ticket.member())?.is_some() {
                let (standing, note) = (edit.standing(at), ticket.note());
                entries.push(Entry { id: ticket.id(), share: ticket.share(), standing, note });
            }
        }
        Ok(Line { name, entries, last: edit.last(), strangers: Vec::new(), views: Vec::new() })
    }
}

enum Life {
    Mine,
    Other(Peer),
}
