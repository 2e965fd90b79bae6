//! A model of the scripts on the queue of one mutex, without the server's clock. The end of a lease
//! is an event of the model.

/// A claim, by number. Each claim is the only one of its client.
pub(super) type Id = u8;

/// The mode of a request to enter.lua.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum EnterMode {
    Queue,
    TryNow,
    Refresh,
    Poll,
}

/// A request to enter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct EnterRequest {
    pub(super) id: Id,
    pub(super) mode: EnterMode,
    pub(super) link: Link,
    /// A fresh nonce, never 0.
    pub(super) nonce: u8,
    /// Absences that have lasted for the holder's grace: the claim, and the nonce of its absence.
    pub(super) expired: Vec<(Id, u8)>,
}

/// The connection that proves that a claim's client is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Link {
    pub(super) epoch: u8,
    /// Whether its absence counts: the connection is to this very server.
    pub(super) verdict: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Holder {
    pub(super) id: Id,
    pub(super) token: u8,
    pub(super) link: Link,
    /// The nonce that notes its absence; 0 without an absence.
    pub(super) nonce: u8,
    pub(super) expired: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiter {
    pub(super) id: Id,
    pub(super) link: Link,
    pub(super) expired: bool,
}

/// The standing of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ModelStanding {
    Held(u8),
    Queued(u8),
    Gone,
}

/// The reply to a request to enter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reply {
    pub(super) standing: ModelStanding,
    /// The last token that the server gave.
    pub(super) last: u8,
    /// Whether the claim is the first of the waiters.
    pub(super) is_next: bool,
    /// The position among the waiters.
    pub(super) position: u8,
    pub(super) absences: Vec<(Id, u8)>,
}

/// The reply to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kept {
    Held,
    /// The claim waits at a position. The renewal sees whether the holder is present.
    Queued(u8, Seen),
    Gone,
}

/// The state of the holder that a renewal sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Seen {
    Present,
    /// The holder is absent, or its lease has ended, or the lock has no holder.
    Absent,
    /// The holder is absent, and its absence is noted.
    AbsenceNote,
}

/// A notification in the inbox of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ModelPush {
    Held(u8),
    Next,
    Gone,
}

/// The effect of a renewal on the noted absence of its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum AbsenceNote {
    /// The renewal clears the note, as the scripts do.
    Ends,
    /// The renewal keeps the note. This variant is wrong on purpose.
    Stays,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct LockModel {
    pub(super) last: u8,
    pub(super) holder: Option<Holder>,
    pub(super) queue: Vec<Waiter>,
    /// The claim that was last notified that it is next.
    notified: Option<Id>,
}

/// One script that runs: the queue, the clients that have a connection, and the notifications sent.
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
            // The script writes nothing.
            self.model.holder = before;
            return false;
        }
        self.take(id);
        self.settle(false);
        true
    }

    /// A holder whose lease has ended loses its hold, and is notified of the loss.
    fn load(&mut self) {
        if let Some(over) = self.model.holder.take_if(|holder| holder.expired) {
            self.push(over.id, ModelPush::Gone);
        }
    }

    /// Leaving reads the clock only where the script must read the whole queue.
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
        let id = request.id;
        let link = request.link;
        if let Some(holder) = self.model.holder.as_mut().filter(|holder| holder.id == id) {
            holder.nonce = 0;
            holder.link = newer(link, holder.link);
        }
        if let Some(waiter) = self.model.queue.iter_mut().find(|waiter| waiter.id == id) {
            waiter.link = newer(link, waiter.link);
        }
    }

    /// Checks whether the holder is present. Notes its absence, or ends the hold if the absence has
    /// lasted.
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
        let mut rank = 0;
        let mut checked = false;

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
        // A reply reports absences only to a claim that is first, that polls, or that is gone.
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
