//! What the scripts do with the line of one mutex, without its clock: that a lease ends is something that happens to it.

/// A claim, by number; each is a client's only one.
pub(super) type Id = u8;

/// How enter.lua is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum EnterMode {
    Queue,
    TryNow,
    Refresh,
    Poll,
}

/// A question to enter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct EnterRequest {
    pub(super) id: Id,
    pub(super) mode: EnterMode,
    pub(super) link: Link,
    /// A fresh one, never 0.
    pub(super) nonce: u8,
    /// Absences that have lasted for the holder's grace: whose, and which.
    pub(super) expired: Vec<(Id, u8)>,
}

/// Which connection vouches for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Link {
    pub(super) epoch: u8,
    /// Whether its absence says anything: it is to this very server.
    pub(super) verdict: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Holder {
    pub(super) id: Id,
    pub(super) token: u8,
    pub(super) link: Link,
    /// What notes its absence; 0 if nothing does.
    pub(super) nonce: u8,
    pub(super) expired: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiter {
    pub(super) id: Id,
    pub(super) link: Link,
    pub(super) expired: bool,
}

/// Where a claim stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ModelStanding {
    Held(u8),
    Queued(u8),
    Gone,
}

/// The answer to entering.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reply {
    pub(super) standing: ModelStanding,
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
    AbsenceNote,
}

/// What a client is told in its inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ModelPush {
    Held(u8),
    Next,
    Gone,
}

/// The claims that renewing clears of what was noted of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum AbsenceNote {
    /// As the scripts do.
    Ends,
    /// A broken twin.
    Stays,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct LockModel {
    pub(super) last: u8,
    pub(super) holder: Option<Holder>,
    pub(super) queue: Vec<Waiter>,
    /// Who was told last that it is next.
    notified: Option<Id>,
}

/// One script that runs: the line, who has a connection, and what is told.
pub(super) struct Script<'a> {
    pub(super) model: &'a mut LockModel,
    pub(super) there: &'a dyn Fn(Id) -> bool,
    pub(super) pushes: Vec<(Id, ModelPush)>,
    caller: Option<Id>,
    polls: bool,
    absences: Vec<(Id, u8)>,
}

impl<'a> Script<'a> {
    pub(super) fn on(lock_state: &'a mut LockModel, there: &'a dyn Fn(Id) -> bool) -> Self {
        Self {
            model: lock_state,
            there,
            pushes: Vec::new(),
            caller: None,
            polls: false,
            absences: Vec::new(),
        }
    }

    pub(super) fn enter(&mut self, request: &EnterRequest) -> Reply {
        self.load();
        self.caller = Some(request.id);
        self.polls = request.mode == EnterMode::Poll;
        let id = request.id;
        if self.model.holder.is_some_and(|holder| holder.id != id)
            && request.mode != EnterMode::Queue
            && self.model.queue.is_empty()
        {
            self.settle_expired(request);
            if self.model.holder.is_some() {
                return self.reply(ModelStanding::Gone, false, 0);
            }
        }
        self.model
            .queue
            .retain(|waiter| waiter.id != id || !waiter.expired);
        if self.has(id) {
            let waits = self.model.queue.iter().any(|waiter| waiter.id == id);
            if !(self.polls && waits) {
                self.keep(request);
            }
            if waits && (self.polls || self.is_first(id)) {
                self.settle_expired(request);
            }
            self.settle(true);
            return self.standing(id);
        }
        if self.polls {
            return self.standing(id);
        }
        if self.model.holder.is_none()
            && self.model.queue.is_empty()
            && request.mode != EnterMode::Refresh
        {
            self.grant(id, request.link);
            return self.standing(id);
        }
        if request.mode != EnterMode::Queue {
            self.settle_expired(request);
            self.settle(true);
        }
        let room = self.model.holder.is_none();
        if request.mode == EnterMode::Queue || request.mode == EnterMode::TryNow && room {
            self.model.queue.push(Waiter {
                id,
                link: request.link,
                expired: false,
            });
            if self.model.queue.len() == 1 {
                self.settle_expired(request);
            }
            self.settle(false);
            if request.mode == EnterMode::TryNow {
                self.model.queue.retain(|waiter| waiter.id != id);
            }
        }
        self.standing(id)
    }

    pub(super) fn renew(&mut self, id: Id, link: Link, noted: AbsenceNote) -> Kept {
        if let Some(holder) = self.model.holder.as_mut().filter(|holder| holder.id == id) {
            holder.expired = false;
            holder.link = newer(link, holder.link);
            if noted == AbsenceNote::Ends {
                holder.nonce = 0;
            }
            return Kept::Held;
        }
        let seen = self.seen();
        let waiting = self.model.queue.iter_mut().zip(1..);
        let Some((waiter, position)) = waiting
            .into_iter()
            .find(|(waiter, _)| waiter.id == id && !waiter.expired)
        else {
            return Kept::Gone;
        };
        waiter.link = newer(link, waiter.link);
        Kept::Queued(position, seen)
    }

    fn seen(&self) -> Seen {
        match self.model.holder {
            Some(holder)
                if !holder.expired && (!holder.link.verdict || (self.there)(holder.id)) =>
            {
                Seen::Present
            }
            Some(holder) if !holder.expired && holder.nonce != 0 => Seen::AbsenceNote,
            Some(_) | None => Seen::Absent,
        }
    }

    pub(super) fn leave(&mut self, id: Id) -> bool {
        let before = self.model.holder;
        self.load_but(id);
        if !self.has(id) {
            // Nothing is written.
            self.model.holder = before;
            return false;
        }
        self.take(id);
        self.settle(false);
        true
    }

    /// Whose lease is over holds no more, and is told so.
    fn load(&mut self) {
        if let Some(over) = self.model.holder.take_if(|holder| holder.expired) {
            self.push(over.id, ModelPush::Gone);
        }
    }

    /// Leaving polls at the time only where it must look at the whole line.
    fn load_but(&mut self, id: Id) {
        let next_is_there =
            |next: &Waiter| !next.expired && (!next.link.verdict || (self.there)(next.id));
        let is_easy = self.model.queue.first().is_none_or(next_is_there);
        if !is_easy || self.model.holder.is_some_and(|holder| holder.id != id) {
            self.load();
        }
    }

    fn has(&self, id: Id) -> bool {
        self.model.holder.is_some_and(|holder| holder.id == id)
            || self.model.queue.iter().any(|waiter| waiter.id == id)
    }

    fn take(&mut self, id: Id) {
        self.model.holder.take_if(|holder| holder.id == id);
        self.model.queue.retain(|waiter| waiter.id != id);
    }

    fn keep(&mut self, request: &EnterRequest) {
        let (id, link) = (request.id, request.link);
        if let Some(holder) = self.model.holder.as_mut().filter(|holder| holder.id == id) {
            (holder.nonce, holder.link) = (0, newer(link, holder.link));
        }
        if let Some(waiter) = self.model.queue.iter_mut().find(|waiter| waiter.id == id) {
            waiter.link = newer(link, waiter.link);
        }
    }

    /// Looks whether the holder is there: notes its absence, or ends it if it has lasted.
    fn settle_expired(&mut self, request: &EnterRequest) {
        let Some(holder) = self
            .model
            .holder
            .as_mut()
            .filter(|holder| holder.link.verdict)
        else {
            return;
        };
        let id = holder.id;
        if (self.there)(id) {
            holder.nonce = 0;
        } else if holder.nonce == 0 {
            holder.nonce = request.nonce;
            self.absences.push((id, request.nonce));
        } else if request.expired.contains(&(id, holder.nonce)) {
            self.model.holder = None;
            self.push(id, ModelPush::Gone);
        } else {
            self.absences.push((id, holder.nonce));
        }
    }

    fn settle(&mut self, check_next: bool) {
        let (mut rank, mut checked) = (0, false);
        loop {
            let Some(next) = self.model.queue.get(rank).copied() else {
                self.model.notified = None;
                return;
            };
            let fits = self.model.holder.is_none();
            if !fits && (checked || !check_next) {
                let told_waits = self
                    .model
                    .queue
                    .iter()
                    .any(|waiter| Some(waiter.id) == self.model.notified);
                if (checked || !told_waits) && self.model.notified != Some(next.id) {
                    self.model.notified = Some(next.id);
                    self.push(next.id, ModelPush::Next);
                }
                return;
            }
            let absent = next.link.verdict && !(self.there)(next.id);
            if next.expired {
                self.model.queue.remove(rank);
                self.push(next.id, ModelPush::Gone);
            } else if self.caller != Some(next.id) && absent {
                rank += 1;
            } else if fits {
                self.model.queue.remove(rank);
                let token = self.grant(next.id, next.link);
                self.push(next.id, ModelPush::Held(token));
                self.model.notified = None;
            } else {
                checked = true;
            }
        }
    }

    fn grant(&mut self, id: Id, link: Link) -> u8 {
        self.model.last += 1;
        let token = self.model.last;
        self.model.holder = Some(Holder {
            id,
            token,
            link,
            nonce: 0,
            expired: false,
        });
        token
    }

    fn push(&mut self, id: Id, push: ModelPush) {
        if self.caller != Some(id) {
            self.pushes.push((id, push));
        }
    }

    fn is_first(&self, id: Id) -> bool {
        self.model
            .queue
            .first()
            .is_some_and(|waiter| waiter.id == id)
    }

    fn standing(&mut self, id: Id) -> Reply {
        let (standing, position) = match (
            self.model.holder,
            self.model
                .queue
                .iter()
                .zip(0..)
                .find(|(waiter, _)| waiter.id == id),
        ) {
            (Some(holder), _) if holder.id == id => (ModelStanding::Held(holder.token), 0),
            (holder, Some((_, rank))) => (
                ModelStanding::Queued(rank + u8::from(holder.is_some())),
                rank + 1,
            ),
            (_, None) => (ModelStanding::Gone, 0),
        };
        let is_next = position > 0 && (self.is_first(id) || self.model.notified == Some(id));
        self.reply(standing, is_next, position)
    }

    fn reply(&mut self, standing: ModelStanding, is_next: bool, position: u8) -> Reply {
        let absences = std::mem::take(&mut self.absences);
        // Only who is first, or polls, or is gone, is told who is absent.
        let is_reported = is_next || standing == ModelStanding::Gone || self.polls && position > 0;
        let absences = if is_reported { absences } else { Vec::new() };
        Reply {
            standing,
            last: self.model.last,
            is_next,
            position,
            absences,
        }
    }
}

fn newer(link: Link, known: Link) -> Link {
    if link.epoch >= known.epoch {
        link
    } else {
        known
    }
}
