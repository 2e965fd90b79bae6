//! Keeping claims alive: one task per engine, for everything in it that waits or is held.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::calls::{REPLY_TIMEOUT, StoreCalls, WeakStoreCalls};
use super::depart::depart;
use super::validity::{End, Phase, Validity, safe_duration};
use crate::claim::ById;
use crate::runtime::clock::{BootInstant, BootTimer};
use crate::runtime::detached::Detached;
use crate::{Claim, ClaimId, LossReason, Result};

/// What is to be renewed, by when.
///
/// Every stay in `validities` has exactly one entry in `schedule`: its next renewal or its end, whichever is earlier.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    schedule: Mutex<Schedule>,
    rescheduled: Notify,
}

#[derive(Debug)]
struct Schedule {
    entries: ById<(BootInstant, Arc<Validity>)>,
    order: BTreeSet<(BootInstant, ClaimId)>,
    /// When the task will look next; whoever adds something earlier wakes it.
    next_wakeup: BootInstant,
    may_hasten_at: BootInstant,
}

impl Default for Schedule {
    fn default() -> Self {
        let (validities, order, may_hasten_at) =
            (ById::default(), BTreeSet::new(), BootInstant::from_nanos(0));
        Self {
            entries: validities,
            order,
            next_wakeup: BootInstant::FAR_FUTURE,
            may_hasten_at,
        }
    }
}

impl Renewals {
    /// Takes charge of a stay whose last answered question was sent at `sent_at`; replaces the claim's earlier stay.
    pub(crate) fn add(&self, validity: Arc<Validity>, sent_at: BootInstant) {
        let due = sent_at.saturating_add(renew_interval(&validity, sent_at, validity.expires_at()));
        self.schedule
            .lock()
            .insert(validity, due, &self.rescheduled);
    }

    /// Renews everything at once, as a request had no reply; once a second at most.
    #[cold]
    pub(crate) fn hasten(&self) {
        const AT_MOST_EVERY: Duration = Duration::from_secs(1);
        let mut schedule = self.schedule.lock();
        let now = BootInstant::now();
        if now < schedule.may_hasten_at {
            return;
        }

        schedule.may_hasten_at = now.saturating_add(AT_MOST_EVERY);
        let validities: Vec<_> = schedule
            .entries
            .values()
            .map(|(_, validity)| Arc::clone(validity))
            .collect();
        for validity in validities {
            schedule.insert(validity, now, &self.rescheduled);
        }
    }

    /// Lets go of a claim that has left or is leaving.
    pub(crate) fn remove(&self, id: ClaimId) {
        self.schedule.lock().remove(id);
    }

    /// Ends what is kept of a claim that is gone: also a hold that came while a renewal of the waiting claim was under
    /// way, as a claim that was gone never comes back.
    pub(super) fn revoke(&self, id: ClaimId) {
        let validity = self.schedule.lock().remove(id);
        if let Some(validity) = validity {
            validity.revoke();
        }
    }

    /// Puts a stay back unless it was removed meanwhile.
    fn reschedule(&self, validity: &Arc<Validity>, due: BootInstant) {
        let mut schedule = self.schedule.lock();
        let same = schedule
            .entries
            .get(&validity.claim.id)
            .is_some_and(|(_, known)| Arc::ptr_eq(known, validity));
        if same {
            schedule.insert(Arc::clone(validity), due, &self.rescheduled);
        }
    }

    /// What is due now, first the ones that end first; each stays on the agenda with its end. What is due soon goes along,
    /// so that many are asked for together, however they came.
    fn due(&self) -> (Vec<Arc<Validity>>, BootInstant) {
        let mut schedule = self.schedule.lock();
        let mut due = Vec::new();
        let now = BootInstant::now();
        while let Some(&(_, id)) = schedule.order.first().filter(|(at, _)| *at <= now) {
            due.push(schedule.claim_due(id, now, &self.rescheduled));
        }
        if !due.is_empty() {
            let soon = schedule.due_soon(now);
            due.extend(
                soon.into_iter()
                    .map(|id| schedule.claim_due(id, now, &self.rescheduled)),
            );
        }
        schedule.next_wakeup = schedule.next_wakeup_at(now);
        due.sort_by_key(|validity| validity.expires_at());
        (due, schedule.next_wakeup)
    }
}

impl Schedule {
    /// Puts off a stay that is asked for now until its end.
    fn claim_due(&mut self, id: ClaimId, now: BootInstant, sooner: &Notify) -> Arc<Validity> {
        let (_, validity) = self
            .entries
            .get(&id)
            .expect("the agenda and its order agree");
        let (validity, ends_at) = (Arc::clone(validity), validity.expires_at());
        if ends_at <= now {
            self.remove(id);
        } else {
            self.insert(Arc::clone(&validity), ends_at, sooner);
        }
        validity
    }

    /// What is to be renewed within a tenth of a second, and within an eighth of what is left of it then.
    fn due_soon(&self, now: BootInstant) -> Vec<ClaimId> {
        const BATCH_WINDOW: Duration = Duration::from_millis(100);
        let soon = self
            .order
            .iter()
            .take_while(|(at, _)| *at <= now.saturating_add(BATCH_WINDOW));
        let is_renewal = |(at, id): &&(BootInstant, ClaimId)| {
            let left = self
                .entries
                .get(id)
                .map_or(Duration::ZERO, |(_, validity)| {
                    validity.expires_at().duration_since(*at)
                });
            at.duration_since(now) < left / 8
        };
        soon.filter(is_renewal).map(|(_, id)| *id).collect()
    }

    /// When to look next. A look that was planned is kept, even if what it was for has left: whoever acquires and releases
    /// over and over would otherwise wake the task each time.
    fn next_wakeup_at(&self, now: BootInstant) -> BootInstant {
        let first = self
            .order
            .first()
            .map_or(BootInstant::FAR_FUTURE, |(at, _)| *at);
        if self.next_wakeup > now {
            first.min(self.next_wakeup)
        } else {
            first
        }
    }

    fn insert(&mut self, validity: Arc<Validity>, renew_at: BootInstant, sooner: &Notify) {
        let id = validity.claim.id;
        let at = if validity.auto_renews() {
            renew_at.min(validity.expires_at())
        } else {
            validity.expires_at()
        };
        self.remove(id);
        self.entries.insert(id, (at, validity));
        self.order.insert((at, id));
        if at < self.next_wakeup {
            self.next_wakeup = at;
            sooner.notify_one();
        }
    }

    fn remove(&mut self, id: ClaimId) -> Option<Arc<Validity>> {
        let (at, validity) = self.entries.remove(&id)?;
        self.order.remove(&(at, id));
        Some(validity)
    }
}

/// The renewal task: lives as long as its engine.
pub(crate) async fn run(calls: WeakStoreCalls, renewals: Arc<Renewals>, alarm: BootTimer) {
    let mut rounds = FuturesUnordered::new();
    loop {
        let (due, next) = renewals.due();
        let (intercepted, alive): (Vec<_>, Vec<_>) = due
            .into_iter()
            .partition(|validity| validity.valid_until().is_none());
        if let Some(calls) = calls.upgrade() {
            for validity in intercepted {
                depart_expired(&calls, &validity);
            }
            if !alive.is_empty() {
                rounds.push(round(calls, &renewals, alive));
            }
        }
        tokio::select! {
            rung = alarm.fires_at(next) => rung.expect("a timer that was made can be set and read"),
            () = renewals.rescheduled.notified() => {}
            Some(()) = rounds.next() => {}
        }
    }
}

/// One question for many claims, and what its answer means for each.
async fn round(calls: StoreCalls, renewals: &Renewals, validities: Vec<Arc<Validity>>) {
    let sent_at = BootInstant::now();
    let replies = renew_batch(&calls, &validities, sent_at).await;
    for (validity, reply) in validities.iter().zip(replies) {
        match reply {
            RenewReply::Renewed(lease) => {
                validity.set_late(false);
                let until = sent_at.saturating_add(safe_duration(lease));
                validity.extend(until);
                renewals.reschedule(
                    validity,
                    sent_at.saturating_add(renew_interval(validity, sent_at, until)),
                );
            }
            RenewReply::Gone => {
                validity.revoke();
                renewals.revoke(validity.claim.id);
            }
            RenewReply::Unknown => {
                validity.set_late(true);
                let now = BootInstant::now();
                renewals.reschedule(validity, now.saturating_add(retry_delay(validity, now)));
            }
        }
    }
}

enum RenewReply {
    Renewed(Duration),
    Gone,
    Unknown,
}

/// Trouble with one claim, a damaged line say, is no reason not to hear of the others: then each is asked for alone.
async fn renew_batch(
    calls: &StoreCalls,
    validities: &[Arc<Validity>],
    now: BootInstant,
) -> Vec<RenewReply> {
    let claims: Vec<Claim> = validities
        .iter()
        .map(|validity| Claim::clone(&validity.claim))
        .collect();
    match calls.renew(&claims, reply_timeout(validities, now)).await {
        Err(error) if claims.len() > 1 && !error.is_unavailable() => {
            let mut replies = Vec::with_capacity(claims.len());
            for claim in claims.chunks(1) {
                replies.extend(split_by_lease(
                    calls.renew(claim, reply_timeout(validities, now)).await,
                    1,
                ));
            }
            replies
        }
        reply => split_by_lease(reply, claims.len()),
    }
}

fn split_by_lease(reply: Result<Vec<Option<Duration>>>, count: usize) -> Vec<RenewReply> {
    match reply {
        Ok(leases) => leases
            .into_iter()
            .map(|lease| lease.map_or(RenewReply::Gone, RenewReply::Renewed))
            .collect(),
        Err(_) => (0..count).map(|_| RenewReply::Unknown).collect(),
    }
}

/// How long to listen for an answer: long enough to ask again before the first of them ends.
fn reply_timeout(validities: &[Arc<Validity>], now: BootInstant) -> Duration {
    let left = validities
        .iter()
        .map(|validity| validity.expires_at().duration_since(now))
        .min()
        .unwrap_or(REPLY_TIMEOUT);
    (left / 3).min(REPLY_TIMEOUT)
}

/// The longest heartbeat interval of a holder whose liveness the store judges.
const HEARTBEAT_MAX: Duration = Duration::from_secs(1);

/// How long after `sent_at` the claim is renewed again, if the request of then keeps it valid until `until`.
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
fn renew_interval(validity: &Validity, sent_at: BootInstant, until: BootInstant) -> Duration {
    let lease = validity.claim.lease;
    let length = until.duration_since(sent_at);
    let is_bounded_by_lease = length >= safe_duration(lease);

    match validity.phase() {
        Phase::Waiting => lease.min(length) / 3,
        Phase::Held if until == BootInstant::FAR_FUTURE => lease / 3,
        Phase::Held if is_bounded_by_lease => lease / 10,
        Phase::Held => (length / 10).min(HEARTBEAT_MAX),
    }
}

/// How soon to send a renewal again that had no reply: within half an interval, and ever sooner as the end comes near.
fn retry_delay(validity: &Validity, now: BootInstant) -> Duration {
    const MIN: Duration = Duration::from_millis(10);
    let remaining = validity.expires_at().duration_since(now);

    (validity.claim.lease / 30)
        .min(HEARTBEAT_MAX / 2)
        .min(remaining / 20)
        .max(MIN)
}

/// Leaves for a stay that ended by its own clock, as the store may still have the claim. One that is gone has nothing
/// to leave; what its guard may still keep open goes with the guard.
fn depart_expired(calls: &StoreCalls, validity: &Validity) {
    if validity
        .ending()
        .and_then(End::loss)
        .is_some_and(|loss| loss != LossReason::Revoked)
    {
        drop(Detached::new(depart(
            calls.clone(),
            Arc::clone(&validity.claim),
            None,
        )));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::background;
    use crate::{ClaimantInfo, Name, OnContention, Share, Store, stores};

    fn claim(name: &str) -> Claim {
        let (name, info) = (
            Name::parse(name).expect("a good name"),
            ClaimantInfo::here("").expect("a good label"),
        );
        Claim {
            name,
            id: ClaimId::draw(),
            share: Share::MUTEX,
            lease: Duration::from_secs(30),
            auto_renew: true,
            info: info.into(),
        }
    }

    fn validity(claim: &Claim) -> Arc<Validity> {
        Arc::new(Validity::new(
            Arc::new(claim.clone()),
            BootInstant::FAR_FUTURE,
            None,
            true,
        ))
    }

    #[test]
    fn renew_interval_follows_phase_and_bound() {
        let (claim, sent_at) = (claim("a"), BootInstant::now());
        let held = validity(&claim);
        let waiting = Validity::new(Arc::new(claim), BootInstant::FAR_FUTURE, None, true).waiting();
        let valid_for = |lease| sent_at.saturating_add(safe_duration(lease));
        let (grace, lease) = (Duration::from_secs(10), Duration::from_secs(30));
        let millis =
            |validity: &Validity, until| renew_interval(validity, sent_at, until).as_millis();

        assert_eq!(
            millis(&held, valid_for(Duration::from_secs(2))),
            199,
            "a tenth of a short grace"
        );
        assert_eq!(
            millis(&held, valid_for(grace)),
            999,
            "a tenth of the default grace"
        );
        assert_eq!(
            millis(&held, valid_for(Duration::from_secs(20))),
            1_000,
            "at most a second"
        );
        assert_eq!(
            millis(&held, valid_for(lease)),
            3_000,
            "a tenth of the lease where it is the bound"
        );
        assert_eq!(
            millis(&held, BootInstant::FAR_FUTURE),
            10_000,
            "a third of the lease where nothing ends a claim"
        );
        assert_eq!(
            millis(&waiting, valid_for(lease)),
            9_994,
            "a third while it waits"
        );
    }

    #[test]
    fn claims_due_soon_are_renewed_together() {
        let (renewals, now) = (Renewals::default(), BootInstant::now());
        for (name, millis_ago) in [("a", 3_000), ("b", 2_950), ("c", 2_000)] {
            let sent_at = BootInstant::from_nanos(now.as_nanos() - millis_ago * 1_000_000);
            let ends_at = sent_at.saturating_add(Duration::from_secs(30));
            renewals.add(
                Arc::new(Validity::new(Arc::new(claim(name)), ends_at, None, true)),
                sent_at,
            );
        }
        let names = |validities: &[Arc<Validity>]| {
            validities
                .iter()
                .map(|validity| validity.claim.name.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&renewals.due().0), ["a", "b"]);
        assert!(renewals.due().0.is_empty(), "they are asked for already");
    }

    /// What is wrong with one line does not keep the holders of others from hearing that they were broken.
    #[cfg(feature = "file")]
    #[tokio::test]
    async fn damaged_queue_does_not_block_other_renewals() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = Arc::new(stores::File::at(folder.path()).expect("it opens"));
        let (torn, broken) = (claim("a"), claim("b"));
        for claim in [&torn, &broken] {
            store
                .enter(claim, OnContention::Queue)
                .await
                .expect("entered");
        }
        std::fs::write(folder.path().join("a.queue"), "#!/bin/sh").expect("written");
        store.leave(&broken).await.expect("broken");
        let (renewals, held) = (Renewals::default(), validity(&broken));
        let calls = StoreCalls::new(store, "file:");
        background::on_background(round(
            calls,
            &renewals,
            vec![validity(&torn), Arc::clone(&held)],
        ))
        .await;
        assert_eq!(held.ending(), Some(End::Lost(LossReason::Revoked)));
    }

    /// A renewal of the waiting claim was sent; then the claim is granted, then broken, and then the answer comes.
    #[tokio::test]
    async fn hold_is_revoked_by_reply_to_its_waiting_renewal() {
        let claim = claim("a");
        let store = stores::Memory::new();
        store
            .enter(&claim, OnContention::Queue)
            .await
            .expect("entered");
        let (renewals, waiting, held) = (Renewals::default(), validity(&claim), validity(&claim));
        renewals.add(Arc::clone(&waiting), BootInstant::now());
        let calls = StoreCalls::new(Arc::new(store.clone()), "memory:");
        let renewing = round(calls, &renewals, vec![waiting]);
        renewals.add(Arc::clone(&held), BootInstant::now());
        store.leave(&claim).await.expect("broken");
        background::start().expect("it runs");
        background::on_background(renewing).await;
        assert_eq!(held.ending(), Some(End::Lost(LossReason::Revoked)));
    }
}
