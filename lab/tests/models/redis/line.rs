//! What the scripts do with the line of one mutex, without its clock: that a lease ends is something that happens to it.

/// A claim, by number; each is a client's only one.
pub(super) type Id = u8;

/// How enter.lua is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum How {
    Queue,
    Refuse,
    Find,
    Look,
}

/// A question to enter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Asking {
    pub(super) id: Id,
    pub(super) how: How,
    pub(super) link: Link,
    /// A fresh one, never 0.
    pub(super) nonce: u8,
    /// Absences that have lasted for the holder's grace: whose, and which.
    pub(super) ripe: Vec<(Id, u8)>,
}

/// Which connection vouches for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Link {
    pub(super) epoch: u8,
    /// Whether its absence says anything: it is to this very server.
    pub(super) judged: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Holder {
    pub(super) id: Id,
    pub(super) token: u8,
    pub(super) link: Link,
    /// What notes its absence; 0 if nothing does.
    pub(super) nonce: u8,
    pub(super) over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiter {
    pub(super) id: Id,
    pub(super) link: Link,
    pub(super) over: bool,
}

/// Where a claim stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Held(u8),
    Queued(u8),
    Gone,
}

/// The answer to entering.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reply {
    pub(super) place: Place,
    /// The last token that was given.
    pub(super) last: u8,
    /// First of those who wait.
    pub(super) is_next: bool,
    /// The position among those who wait.
    pub(super) position: u8,
    pub(super) absences: Vec<(Id, u8)>,
}

/// The answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kept {
    Held,
    /// It waits at a position, and of the holder is known whether it is there.
    Queued(u8, Seen),
    Gone,
}

/// What a renewal sees of the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Seen {
    Present,
    /// Absent, or over, or there is none.
    Absent,
    /// Absent, and its absence is noted.
    Noted,
}

/// What a client is told in its inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Word {
    Held(u8),
    Next,
    Gone,
}

/// The claims that renewing clears of what was noted of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Noted {
    /// As the scripts do.
    Ends,
    /// A broken twin.
    Stays,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Line {
    pub(super) last: u8,
    pub(super) holder: Option<Holder>,
    pub(super) queue: Vec<Waiter>,
    /// Who was told last that it is next.
    told: Option<Id>,
}

/// One script that runs: the line, who has a connection, and what is told.
pub(super) struct Script<'a> {
    pub(super) line: &'a mut Line,
    pub(super) there: &'a dyn Fn(Id) -> bool,
    pub(super) words: Vec<(Id, Word)>,
    asking: Option<Id>,
    looks: bool,
    absences: Vec<(Id, u8)>,
}

impl<'a> Script<'a> {
    pub(super) fn on(line: &'a mut Line, there: &'a dyn Fn(Id) -> bool) -> Self {
        Self { line, there, words: Vec::new(), asking: None, looks: false, absences: Vec::new() }
    }

    pub(super) fn enter(&mut self, asking: &Asking) -> Reply {
        self.load();
        self.asking = Some(asking.id);
        self.looks = asking.how == How::Look;
        let id = asking.id;
        if self.line.holder.is_some_and(|holder| holder.id != id)
            && asking.how != How::Queue
            && self.line.queue.is_empty()
        {
            self.look(asking);
            if self.line.holder.is_some() {
                return self.reply(Place::Gone, false, 0);
            }
        }
        self.line.queue.retain(|waiter| waiter.id != id || !waiter.over);
        if self.has(id) {
            let waits = self.line.queue.iter().any(|waiter| waiter.id == id);
            if !(self.looks && waits) {
                self.keep(asking);
            }
            if waits && (self.looks || self.is_first(id)) {
                self.look(asking);
            }
            self.settle(true);
            return self.standing(id);
        }
        if self.looks {
            return self.standing(id);
        }
        if self.line.holder.is_none() && self.line.queue.is_empty() && asking.how != How::Find {
            self.grant(id, asking.link);
            return self.standing(id);
        }
        if asking.how != How::Queue {
            self.look(asking);
            self.settle(true);
        }
        let room = self.line.holder.is_none();
        if asking.how == How::Queue || asking.how == How::Refuse && room {
            self.line.queue.push(Waiter { id, link: asking.link, over: false });
            if self.line.queue.len() == 1 {
                self.look(asking);
            }
            self.settle(false);
            if asking.how == How::Refuse {
                self.line.queue.retain(|waiter| waiter.id != id);
            }
        }
        self.standing(id)
    }

    pub(super) fn renew(&mut self, id: Id, link: Link, noted: Noted) -> Kept {
        if let Some(holder) = self.line.holder.as_mut().filter(|holder| holder.id == id) {
            holder.over = false;
            holder.link = newer(link, holder.link);
            if noted == Noted::Ends {
                holder.nonce = 0;
            }
            return Kept::Held;
        }
        let seen = self.seen();
        let waiting = self.line.queue.iter_mut().zip(1..);
        let Some((waiter, position)) = waiting.into_iter().find(|(waiter, _)| waiter.id == id && !waiter.over) else {
            return Kept::Gone;
        };
        waiter.link = newer(link, waiter.link);
        Kept::Queued(position, seen)
    }

    fn seen(&self) -> Seen {
        match self.line.holder {
            Some(holder) if !holder.over && (!holder.link.judged || (self.there)(holder.id)) => Seen::Present,
            Some(holder) if !holder.over && holder.nonce != 0 => Seen::Noted,
            Some(_) | None => Seen::Absent,
        }
    }

    pub(super) fn leave(&mut self, id: Id) -> bool {
        let before = self.line.holder;
        self.load_but(id);
        if !self.has(id) {
            // Nothing is written.
            self.line.holder = before;
            return false;
        }
        self.take(id);
        self.settle(false);
        true
    }

    /// Whose lease is over holds no more, and is told so.
    fn load(&mut self) {
        if let Some(over) = self.line.holder.take_if(|holder| holder.over) {
            self.tell(over.id, Word::Gone);
        }
    }

    /// Leaving looks at the time only where it must look at the whole line.
    fn load_but(&mut self, id: Id) {
        let next_is_there = |next: &Waiter| !next.over && (!next.link.judged || (self.there)(next.id));
        let is_easy = self.line.queue.first().is_none_or(next_is_there);
        if !is_easy || self.line.holder.is_some_and(|holder| holder.id != id) {
            self.load();
        }
    }

    fn has(&self, id: Id) -> bool {
        self.line.holder.is_some_and(|holder| holder.id == id) || self.line.queue.iter().any(|waiter| waiter.id == id)
    }

    fn take(&mut self, id: Id) {
        self.line.holder.take_if(|holder| holder.id == id);
        self.line.queue.retain(|waiter| waiter.id != id);
    }

    fn keep(&mut self, asking: &Asking) {
        let (id, link) = (asking.id, asking.link);
        if let Some(holder) = self.line.holder.as_mut().filter(|holder| holder.id == id) {
            (holder.nonce, holder.link) = (0, newer(link, holder.link));
        }
        if let Some(waiter) = self.line.queue.iter_mut().find(|waiter| waiter.id == id) {
            waiter.link = newer(link, waiter.link);
        }
    }

    /// Looks whether the holder is there: notes its absence, or ends it if it has lasted.
    fn look(&mut self, asking: &Asking) {
        let Some(holder) = self.line.holder.as_mut().filter(|holder| holder.link.judged) else { return };
        let id = holder.id;
        if (self.there)(id) {
            holder.nonce = 0;
        } else if holder.nonce == 0 {
            holder.nonce = asking.nonce;
            self.absences.push((id, asking.nonce));
        } else if asking.ripe.contains(&(id, holder.nonce)) {
            self.line.holder = None;
            self.tell(id, Word::Gone);
        } else {
            self.absences.push((id, holder.nonce));
        }
    }

    fn settle(&mut self, look_close: bool) {
        let (mut rank, mut looked) = (0, false);
        loop {
            let Some(next) = self.line.queue.get(rank).copied() else {
                self.line.told = None;
                return;
            };
            let fits = self.line.holder.is_none();
            if !fits && (looked || !look_close) {
                let told_waits = self.line.queue.iter().any(|waiter| Some(waiter.id) == self.line.told);
                if (looked || !told_waits) && self.line.told != Some(next.id) {
                    self.line.told = Some(next.id);
                    self.tell(next.id, Word::Next);
                }
                return;
            }
            let absent = next.link.judged && !(self.there)(next.id);
            if next.over {
                self.line.queue.remove(rank);
                self.tell(next.id, Word::Gone);
            } else if self.asking != Some(next.id) && absent {
                rank += 1;
            } else if fits {
                self.line.queue.remove(rank);
                let token = self.grant(next.id, next.link);
                self.tell(next.id, Word::Held(token));
                self.line.told = None;
            } else {
                looked = true;
            }
        }
    }

    fn grant(&mut self, id: Id, link: Link) -> u8 {
        self.line.last += 1;
        let token = self.line.last;
        self.line.holder = Some(Holder { id, token, link, nonce: 0, over: false });
        token
    }

    fn tell(&mut self, id: Id, word: Word) {
        if self.asking != Some(id) {
            self.words.push((id, word));
        }
    }

    fn is_first(&self, id: Id) -> bool {
        self.line.queue.first().is_some_and(|waiter| waiter.id == id)
    }

    fn standing(&mut self, id: Id) -> Reply {
        let (place, position) =
            match (self.line.holder, self.line.queue.iter().zip(0..).find(|(waiter, _)| waiter.id == id)) {
                (Some(holder), _) if holder.id == id => (Place::Held(holder.token), 0),
                (holder, Some((_, rank))) => (Place::Queued(rank + u8::from(holder.is_some())), rank + 1),
                (_, None) => (Place::Gone, 0),
            };
        let is_next = position > 0 && (self.is_first(id) || self.line.told == Some(id));
        self.reply(place, is_next, position)
    }

    fn reply(&mut self, place: Place, is_next: bool, position: u8) -> Reply {
        let absences = std::mem::take(&mut self.absences);
        // Only who is first, or looks, or is gone, is told who is absent.
        let is_told = is_next || place == Place::Gone || self.looks && position > 0;
        let absences = if is_told { absences } else { Vec::new() };
        Reply { place, last: self.line.last, is_next, position, absences }
    }
}

fn newer(link: Link, known: Link) -> Link {
    if link.epoch >= known.epoch { link } else { known }
}
