//! Keeping claims alive: one task per engine, for everything in it that waits or is held.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::call::{ANSWER_MAX, ClosingDoor, Door};
use super::depart::depart;
use super::stay::{Ending, Phase, Stay, trusted};
use crate::background::Finish;
use crate::claim::ById;
use crate::clock::{Alarm, Moment};
use crate::{Claim, ClaimId, Loss, Result};

/// What is to be renewed, by when.
///
/// Every stay in `stays` has exactly one entry in `agenda`: its next renewal or its end, whichever is earlier.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    agenda: Mutex<Agenda>,
    sooner: Notify,
}

#[derive(Debug)]
struct Agenda {
    stays: ById<(Moment, Arc<Stay>)>,
    order: BTreeSet<(Moment, ClaimId)>,
    /// When the task will look next; whoever adds something earlier wakes it.
    next_look: Moment,
    may_hasten_at: Moment,
}

impl Default for Agenda {
    fn default() -> Self {
        let (stays, order, may_hasten_at) = (ById::default(), BTreeSet::new(), Moment::from_nanos(0));
        Self { stays, order, next_look: Moment::NEVER, may_hasten_at }
    }
}

impl Renewals {
    /// Takes charge of a stay whose last answered question was sent at `asked`; replaces the claim's earlier stay.
    pub(crate) fn add(&self, stay: Arc<Stay>, asked: Moment) {
        let due = asked.after(renew_interval(&stay, asked, stay.ends_at()));
        self.agenda.lock().put(stay, due, &self.sooner);
    }

    /// Renews everything at once, as a request had no reply; once a second at most.
    #[cold]
    pub(crate) fn hasten(&self) {
        const AT_MOST_EVERY: Duration = Duration::from_secs(1);
        let mut agenda = self.agenda.lock();
        let now = Moment::now();
        if now < agenda.may_hasten_at {
            return;
        }

        agenda.may_hasten_at = now.after(AT_MOST_EVERY);
        let stays: Vec<_> = agenda.stays.values().map(|(_, stay)| Arc::clone(stay)).collect();
        for stay in stays {
            agenda.put(stay, now, &self.sooner);
        }
    }

    /// Lets go of a claim that has left or is leaving.
    pub(crate) fn remove(&self, id: ClaimId) {
        self.agenda.lock().take(id);
    }

    /// Ends what is kept of a claim that is gone: also a hold that came while a renewal of the waiting claim was under
    /// way, as a claim that was gone never comes back.
    pub(super) fn gone(&self, id: ClaimId) {
        let stay = self.agenda.lock().take(id);
        if let Some(stay) = stay {
            stay.gone();
        }
    }

    /// Puts a stay back unless it was removed meanwhile.
    fn again(&self, stay: &Arc<Stay>, due: Moment) {
        let mut agenda = self.agenda.lock();
        let same = agenda.stays.get(&stay.claim.id).is_some_and(|(_, known)| Arc::ptr_eq(known, stay));
        if same {
            agenda.put(Arc::clone(stay), due, &self.sooner);
        }
    }

    /// What is due now, first the ones that end first; each stays on the agenda with its end. What is due soon goes along,
    /// so that many are asked for together, however they came.
    fn due(&self) -> (Vec<Arc<Stay>>, Moment) {
        let mut agenda = self.agenda.lock();
        let mut due = Vec::new();
        let now = Moment::now();
        while let Some(&(_, id)) = agenda.order.first().filter(|(at, _)| *at <= now) {
            due.push(agenda.asks(id, now, &self.sooner));
        }
        if !due.is_empty() {
            let soon = agenda.soon(now);
            due.extend(soon.into_iter().map(|id| agenda.asks(id, now, &self.sooner)));
        }
        agenda.next_look = agenda.plan(now);
        due.sort_by_key(|stay| stay.ends_at());
        (due, agenda.next_look)
    }
}

impl Agenda {
    /// Puts off a stay that is asked for now until its end.
    fn asks(&mut self, id: ClaimId, now: Moment, sooner: &Notify) -> Arc<Stay> {
        let (_, stay) = self.stays.get(&id).expect("the agenda and its order agree");
        let (stay, ends_at) = (Arc::clone(stay), stay.ends_at());
        if ends_at <= now {
            self.take(id);
        } else {
            self.put(Arc::clone(&stay), ends_at, sooner);
        }
        stay
    }

    /// What is to be renewed within a tenth of a second, and within an eighth of what is left of it then.
    fn soon(&self, now: Moment) -> Vec<ClaimId> {
        const SOON: Duration = Duration::from_millis(100);
        let soon = self.order.iter().take_while(|(at, _)| *at <= now.after(SOON));
        let is_renewal = |(at, id): &&(Moment, ClaimId)| {
            let left = self.stays.get(id).map_or(Duration::ZERO, |(_, stay)| stay.ends_at().since(*at));
            at.since(now) < left / 8
        };
        soon.filter(is_renewal).map(|(_, id)| *id).collect()
    }

    /// When to look next. A look that was planned is kept, even if what it was for has left: whoever acquires and releases
    /// over and over would otherwise wake the task each time.
    fn plan(&self, now: Moment) -> Moment {
        let first = self.order.first().map_or(Moment::NEVER, |(at, _)| *at);
        if self.next_look > now { first.min(self.next_look) } else { first }
    }

    fn put(&mut self, stay: Arc<Stay>, renew_at: Moment, sooner: &Notify) {
        let id = stay.claim.id;
        let at = if stay.is_renewed() { renew_at.min(stay.ends_at()) } else { stay.ends_at() };
        self.take(id);
        self.stays.insert(id, (at, stay));
        self.order.insert((at, id));
        if at < self.next_look {
            self.next_look = at;
            sooner.notify_one();
        }
    }

    fn take(&mut self, id: ClaimId) -> Option<Arc<Stay>> {
        let (at, stay) = self.stays.remove(&id)?;
        self.order.remove(&(at, id));
        Some(stay)
    }
}

/// The renewal task: lives as long as its engine.
pub(crate) async fn run(door: ClosingDoor, renewals: Arc<Renewals>, alarm: Alarm) {
    let mut rounds = FuturesUnordered::new();
    loop {
        let (due, next) = renewals.due();
        let (over, alive): (Vec<_>, Vec<_>) = due.into_iter().partition(|stay| stay.until().is_none());
        if let Some(door) = door.open() {
            for stay in over {
                see_off(&door, &stay);
            }
            if !alive.is_empty() {
                rounds.push(round(door, &renewals, alive));
            }
        }
        tokio::select! {
            rung = alarm.rings_at(next) => rung.expect("a timer that was made can be set and read"),
            () = renewals.sooner.notified() => {}
            Some(()) = rounds.next() => {}
        }
    }
}

/// One question for many claims, and what its answer means for each.
async fn round(door: Door, renewals: &Renewals, stays: Vec<Arc<Stay>>) {
    let asked = Moment::now();
    let answers = ask(&door, &stays, asked).await;
    for (stay, answer) in stays.iter().zip(answers) {
        match answer {
            Answer::Safe(lease) => {
                stay.set_late(false);
                let until = asked.after(trusted(lease));
                stay.extend(until);
                renewals.again(stay, asked.after(renew_interval(stay, asked, until)));
            }
            Answer::Gone => {
                stay.gone();
                renewals.gone(stay.claim.id);
            }
            Answer::Unknown => {
                stay.set_late(true);
                let now = Moment::now();
                renewals.again(stay, now.after(retry_delay(stay, now)));
            }
        }
    }
}

enum Answer {
    Safe(Duration),
    Gone,
    Unknown,
}

/// Trouble with one claim, a damaged line say, is no reason not to hear of the others: then each is asked for alone.
async fn ask(door: &Door, stays: &[Arc<Stay>], now: Moment) -> Vec<Answer> {
    let claims: Vec<Claim> = stays.iter().map(|stay| Claim::clone(&stay.claim)).collect();
    match door.renew(&claims, patience(stays, now)).await {
        Err(error) if claims.len() > 1 && !error.is_unavailable() => {
            let mut answers = Vec::with_capacity(claims.len());
            for claim in claims.chunks(1) {
                answers.extend(spread(door.renew(claim, patience(stays, now)).await, 1));
            }
            answers
        }
        answer => spread(answer, claims.len()),
    }
}

fn spread(answer: Result<Vec<Option<Duration>>>, count: usize) -> Vec<Answer> {
    match answer {
        Ok(leases) => leases.into_iter().map(|lease| lease.map_or(Answer::Gone, Answer::Safe)).collect(),
        Err(_) => (0..count).map(|_| Answer::Unknown).collect(),
    }
}

/// How long to listen for an answer: long enough to ask again before the first of them ends.
fn patience(stays: &[Arc<Stay>], now: Moment) -> Duration {
    let left = stays.iter().map(|stay| stay.ends_at().since(now)).min().unwrap_or(ANSWER_MAX);
    (left / 3).min(ANSWER_MAX)
}

/// The longest heartbeat interval of a holder whose liveness the store judges.
const HEARTBEAT_MAX: Duration = Duration::from_secs(1);

/// How long after `asked` the claim is renewed again, if the request of then keeps it valid until `until`.
///
/// | claim | renewed every |
/// |---|---|
/// | waiting | third of its validity |
/// | held, judged by a grace or a session that is shorter than its lease | tenth of its validity, at most 1 s |
/// | held, bounded by its lease | tenth of the lease |
/// | held without end, as in the file store | third of the lease: renewals only notice that the claim is gone |
///
/// A holder that renews every tenth survives an outage of 0.6 of its validity that begins just before a renewal.
/// It then has 0.3 of it left to reconnect, and `leasehold run` still has time to stop its command.
fn renew_interval(stay: &Stay, asked: Moment, until: Moment) -> Duration {
    let lease = stay.claim.lease;
    let length = until.since(asked);
    let is_bounded_by_lease = length >= trusted(lease);

    match stay.phase() {
        Phase::Waiting => lease.min(length) / 3,
        Phase::Held if until == Moment::NEVER => lease / 3,
        Phase::Held if is_bounded_by_lease => lease / 10,
        Phase::Held => (length / 10).min(HEARTBEAT_MAX),
    }
}

/// How soon to send a renewal again that had no reply: within half an interval, and ever sooner as the end comes near.
fn retry_delay(stay: &Stay, now: Moment) -> Duration {
    const MIN: Duration = Duration::from_millis(10);
    let remaining = stay.ends_at().since(now);

    (stay.claim.lease / 30).min(HEARTBEAT_MAX / 2).min(remaining / 20).max(MIN)
}

/// Leaves for a stay that ended by its own clock, as the store may still have the claim. One that is gone has nothing
/// to leave; what its guard may still keep open goes with the guard.
fn see_off(door: &Door, stay: &Stay) {
    if stay.ending().and_then(Ending::loss).is_some_and(|loss| loss != Loss::Gone) {
        drop(Finish::new(depart(door.clone(), Arc::clone(&stay.claim), None)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Name, Note, Patience, Share, Store, background, stores};

    fn claim(name: &str) -> Claim {
        let (name, note) = (Name::parse(name).expect("a good name"), Note::here("").expect("a good label"));
        Claim {
            name,
            id: ClaimId::draw(),
            share: Share::MUTEX,
            lease: Duration::from_secs(30),
            renewed: true,
            note: note.into(),
        }
    }

    fn stay(claim: &Claim) -> Arc<Stay> {
        Arc::new(Stay::new(Arc::new(claim.clone()), Moment::NEVER, None, true))
    }

    #[test]
    fn renew_interval_follows_phase_and_bound() {
        let (claim, asked) = (claim("a"), Moment::now());
        let held = stay(&claim);
        let waiting = Stay::new(Arc::new(claim), Moment::NEVER, None, true).waiting();
        let valid_for = |lease| asked.after(trusted(lease));
        let (grace, lease) = (Duration::from_secs(10), Duration::from_secs(30));
        let millis = |stay: &Stay, until| renew_interval(stay, asked, until).as_millis();

        assert_eq!(millis(&held, valid_for(Duration::from_secs(2))), 199, "a tenth of a short grace");
        assert_eq!(millis(&held, valid_for(grace)), 999, "a tenth of the default grace");
        assert_eq!(millis(&held, valid_for(Duration::from_secs(20))), 1_000, "at most a second");
        assert_eq!(millis(&held, valid_for(lease)), 3_000, "a tenth of the lease where it is the bound");
        assert_eq!(millis(&held, Moment::NEVER), 10_000, "a third of the lease where nothing ends a claim");
        assert_eq!(millis(&waiting, valid_for(lease)), 9_994, "a third while it waits");
    }

    #[test]
    fn what_is_due_soon_goes_along() {
        let (renewals, now) = (Renewals::default(), Moment::now());
        for (name, millis_ago) in [("a", 3_000), ("b", 2_950), ("c", 2_000)] {
            let asked = Moment::from_nanos(now.as_nanos() - millis_ago * 1_000_000);
            let ends_at = asked.after(Duration::from_secs(30));
            renewals.add(Arc::new(Stay::new(Arc::new(claim(name)), ends_at, None, true)), asked);
        }
        let names = |stays: &[Arc<Stay>]| stays.iter().map(|stay| stay.claim.name.to_string()).collect::<Vec<_>>();
        assert_eq!(names(&renewals.due().0), ["a", "b"]);
        assert!(renewals.due().0.is_empty(), "they are asked for already");
    }

    /// What is wrong with one line does not keep the holders of others from hearing that they were broken.
    #[cfg(feature = "file")]
    #[tokio::test]
    async fn a_damaged_line_is_its_own_trouble() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = Arc::new(stores::File::at(folder.path()).expect("it opens"));
        let (torn, broken) = (claim("a"), claim("b"));
        for claim in [&torn, &broken] {
            store.enter(claim, Patience::Queue).await.expect("entered");
        }
        std::fs::write(folder.path().join("a.line"), "#!/bin/sh").expect("written");
        store.leave(&broken).await.expect("broken");
        let (renewals, held) = (Renewals::default(), stay(&broken));
        let door = Door::new(store, "file:");
        background::within(round(door, &renewals, vec![stay(&torn), Arc::clone(&held)])).await;
        assert_eq!(held.ending(), Some(Ending::Lost(Loss::Gone)));
    }

    /// A renewal of the waiting claim was sent; then the claim is granted, then broken, and then the answer comes.
    #[tokio::test]
    async fn a_hold_hears_what_was_asked_of_its_waiting() {
        let claim = claim("a");
        let store = stores::Memory::new();
        store.enter(&claim, Patience::Queue).await.expect("entered");
        let (renewals, waiting, held) = (Renewals::default(), stay(&claim), stay(&claim));
        renewals.add(Arc::clone(&waiting), Moment::now());
        let door = Door::new(Arc::new(store.clone()), "memory:");
        let renewing = round(door, &renewals, vec![waiting]);
        renewals.add(Arc::clone(&held), Moment::now());
        store.leave(&claim).await.expect("broken");
        background::start().expect("it runs");
        background::within(renewing).await;
        assert_eq!(held.ending(), Some(Ending::Lost(Loss::Gone)));
    }
}
