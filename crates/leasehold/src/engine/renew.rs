//! Renewal: one task per engine, for every claim that waits or is held.

use std::collections::BTreeSet;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::calls::{REPLY_TIMEOUT, StoreCalls, WeakStoreCalls};
use super::depart::{PendingEntry, depart};
use super::validity::{End, Phase, Validity, safe_duration};
use crate::claim::ById;
use crate::runtime::clock::{BootInstant, BootTimer};
use crate::runtime::detached::Detached;
use crate::{Claim, ClaimId, LossReason, Result};

/// The renewal task: runs while its engine exists.
pub(crate) async fn run(calls: WeakStoreCalls, renewals: Arc<Renewals>, timer: BootTimer) {
    let mut rounds = FuturesUnordered::new();
    loop {
        let due = renewals.due();
        let (valid, expired): (Vec<_>, Vec<_>) = due
            .validities
            .into_iter()
            .partition(|validity| validity.valid_until().is_some());

        if let Some(calls) = calls.upgrade() {
            for validity in expired {
                depart_expired(&calls, &validity);
            }
            if !valid.is_empty() {
                rounds.push(round(calls, &renewals, valid));
            }
        }

        tokio::select! {
            fired = timer.fires_at(due.next_wakeup) => {
                fired.expect("a timer that was created can be set and read");
            }
            () = renewals.rescheduled.notified() => {}
            Some(()) = rounds.next() => {}
        }
    }
}

/// The claims to renew, and when.
///
/// Every validity in `entries` is in `order` once: at its next renewal or its end, whichever is
/// earlier.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    schedule: Mutex<Schedule>,
    rescheduled: Notify,
}

/// The claims that are due, and the time at which the task wakes up next.
struct Due {
    validities: Vec<Arc<Validity>>,
    next_wakeup: BootInstant,
}

impl Renewals {
    /// Begins to renew a claim whose last request with a reply was sent at `sent_at`.
    ///
    /// It replaces the earlier validity of the claim.
    pub(crate) fn add(&self, validity: Arc<Validity>, sent_at: BootInstant) {
        let interval = renew_interval(&validity, sent_at, validity.expires_at());
        self.schedule.lock().insert(
            validity,
            sent_at.saturating_add(interval),
            &self.rescheduled,
        );
    }

    /// Renews every claim at once after a request had no reply, at most once a second.
    #[cold]
    pub(crate) fn hasten(&self) {
        const INTERVAL_MIN: Duration = Duration::from_secs(1);
        let mut schedule = self.schedule.lock();
        let now = BootInstant::now();
        if now < schedule.may_hasten_at {
            return;
        }
        schedule.may_hasten_at = now.saturating_add(INTERVAL_MIN);

        let entries = schedule.entries.values();
        let validities: Vec<_> = entries.map(|(_, validity)| Arc::clone(validity)).collect();
        for validity in validities {
            schedule.insert(validity, now, &self.rescheduled);
        }
    }

    /// Stops renewing a claim that has left or is leaving.
    pub(crate) fn remove(&self, id: ClaimId) {
        self.schedule.lock().remove(id);
    }

    /// Ends the validity of a claim that is gone.
    ///
    /// This may be a hold that was granted while a renewal of the waiting claim was under way. A
    /// claim that was gone never comes back.
    pub(super) fn revoke(&self, id: ClaimId) {
        let validity = self.schedule.lock().remove(id);
        if let Some(validity) = validity {
            validity.revoke();
        }
    }

    /// Moves a validity to another time, unless it was removed or replaced meanwhile.
    fn reschedule(&self, validity: &Arc<Validity>, due: BootInstant) {
        let mut schedule = self.schedule.lock();
        let entry = schedule.entries.get(&validity.claim.id);

        if entry.is_some_and(|(_, scheduled)| Arc::ptr_eq(scheduled, validity)) {
            schedule.insert(Arc::clone(validity), due, &self.rescheduled);
        }
    }

    /// Returns the claims that are due, those that expire first at the front.
    ///
    /// Each stays scheduled for its end. Claims that are due soon are included, so that one request
    /// renews many.
    fn due(&self) -> Due {
        let mut schedule = self.schedule.lock();
        let now = BootInstant::now();

        let mut validities = Vec::new();
        while let Some(&(_, id)) = schedule.order.first().filter(|(at, _)| *at <= now) {
            validities.push(schedule.claim_due(id, now, &self.rescheduled));
        }
        if !validities.is_empty() {
            for id in schedule.due_soon(now) {
                validities.push(schedule.claim_due(id, now, &self.rescheduled));
            }
        }

        schedule.next_wakeup = schedule.next_wakeup_at(now);
        validities.sort_by_key(|validity| validity.expires_at());
        Due {
            validities,
            next_wakeup: schedule.next_wakeup,
        }
    }
}

#[derive(Debug)]
struct Schedule {
    entries: ById<(BootInstant, Arc<Validity>)>,
    order: BTreeSet<(BootInstant, ClaimId)>,
    /// An insertion at an earlier time wakes the task.
    next_wakeup: BootInstant,
    may_hasten_at: BootInstant,
}

impl Schedule {
    /// Moves a claim that is being renewed to its end.
    fn claim_due(&mut self, id: ClaimId, now: BootInstant, sooner: &Notify) -> Arc<Validity> {
        let (_, validity) = self.entries.get(&id).expect("entries and order agree");
        let validity = Arc::clone(validity);

        let expires_at = validity.expires_at();
        if expires_at <= now {
            self.remove(id);
        } else {
            self.insert(Arc::clone(&validity), expires_at, sooner);
        }
        validity
    }

    /// Returns the claims that are due in the next tenth of a second.
    ///
    /// A claim is included only if it is due within an eighth of what remains of it then.
    fn due_soon(&self, now: BootInstant) -> Vec<ClaimId> {
        const BATCH_WINDOW: Duration = Duration::from_millis(100);
        let window_end = now.saturating_add(BATCH_WINDOW);

        let soon = self.order.iter().take_while(|(at, _)| *at <= window_end);
        let renewals = soon.filter(|(at, id)| {
            let (_, validity) = self.entries.get(id).expect("entries and order agree");
            let remaining = validity.expires_at().duration_since(*at);
            at.duration_since(now) < remaining / 8
        });
        renewals.map(|(_, id)| *id).collect()
    }

    /// Returns when to wake up next.
    ///
    /// A planned wake-up is kept even if its claim has left. A client that acquires and releases
    /// all the time would otherwise wake the task each time.
    fn next_wakeup_at(&self, now: BootInstant) -> BootInstant {
        let first = self.order.first();
        let first = first.map_or(BootInstant::FAR_FUTURE, |(at, _)| *at);

        if self.next_wakeup > now {
            first.min(self.next_wakeup)
        } else {
            first
        }
    }

    fn insert(&mut self, validity: Arc<Validity>, renew_at: BootInstant, sooner: &Notify) {
        let id = validity.claim.id;
        let expires_at = validity.expires_at();
        let at = if validity.auto_renews() {
            renew_at.min(expires_at)
        } else {
            expires_at
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

impl Default for Schedule {
    fn default() -> Self {
        Self {
            entries: ById::default(),
            order: BTreeSet::new(),
            next_wakeup: BootInstant::FAR_FUTURE,
            may_hasten_at: BootInstant::from_nanos(0),
        }
    }
}

/// Renews many claims with one request, and applies the reply to each.
async fn round(calls: StoreCalls, renewals: &Renewals, validities: Vec<Arc<Validity>>) {
    let sent_at = BootInstant::now();
    let replies = renew_batch(&calls, &validities, sent_at).await;

    for (validity, reply) in validities.iter().zip(replies) {
        match reply {
            RenewReply::Renewed(lease) => {
                validity.set_late(false);
                let until = sent_at.saturating_add(safe_duration(lease));
                validity.extend(until);

                let interval = renew_interval(validity, sent_at, until);
                renewals.reschedule(validity, sent_at.saturating_add(interval));
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

/// What a client knows of one claim after a renewal.
enum RenewReply {
    Renewed(Duration),
    Gone,
    Unknown,
}

/// Renews claims together, or each alone if the error may concern one of them.
///
/// A damaged queue, for example, must not keep the client from renewing the others.
async fn renew_batch(
    calls: &StoreCalls,
    validities: &[Arc<Validity>],
    now: BootInstant,
) -> Vec<RenewReply> {
    let claims = validities.iter().map(|validity| &*validity.claim);
    let claims: Vec<Claim> = claims.cloned().collect();

    match calls.renew(&claims, reply_timeout(validities, now)).await {
        Err(error) if claims.len() > 1 && !error.is_unavailable() => {
            let mut replies = Vec::with_capacity(claims.len());
            for claim in &claims {
                let limit = reply_timeout(validities, now);
                let reply = calls.renew(slice::from_ref(claim), limit).await;
                replies.extend(reply_per_claim(reply, 1));
            }
            replies
        }
        reply => reply_per_claim(reply, claims.len()),
    }
}

fn reply_per_claim(reply: Result<Vec<Option<Duration>>>, count: usize) -> Vec<RenewReply> {
    match reply {
        Ok(leases) => leases
            .into_iter()
            .map(|lease| lease.map_or(RenewReply::Gone, RenewReply::Renewed))
            .collect(),
        Err(_) => (0..count).map(|_| RenewReply::Unknown).collect(),
    }
}

/// Returns how long to wait for a reply, so that a retry is possible before the first claim ends.
fn reply_timeout(validities: &[Arc<Validity>], now: BootInstant) -> Duration {
    let remaining = validities
        .iter()
        .map(|validity| validity.expires_at().duration_since(now))
        .min()
        .unwrap_or(REPLY_TIMEOUT);
    (remaining / 3).min(REPLY_TIMEOUT)
}

/// The longest heartbeat interval of a holder whose liveness the store observes.
const HEARTBEAT_MAX: Duration = Duration::from_secs(1);

/// Returns how long after `sent_at` the claim is renewed again, if it is valid until `until`.
///
/// | claim | renewed every |
/// |---|---|
/// | waiting | third of its validity |
/// | held, with a grace or session below its lease | tenth of its validity, at most 1 s |
/// | held, ended by its lease | tenth of the lease |
/// | held without end, as in the file store | third of the lease |
///
/// Without an end, renewals only notice that the claim is gone.
///
/// A holder that renews every tenth survives an outage of 0.6 of its validity that begins just
/// before a renewal. It then has 0.3 of it left to reconnect, and `leasehold run` still has time to
/// stop its command.
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

/// Returns how soon to retry a renewal without a reply.
///
/// It is at most half a heartbeat interval, and shrinks as the end comes near.
fn retry_delay(validity: &Validity, now: BootInstant) -> Duration {
    const MIN: Duration = Duration::from_millis(10);
    let remaining = validity.expires_at().duration_since(now);

    (validity.claim.lease / 30)
        .min(HEARTBEAT_MAX / 2)
        .min(remaining / 20)
        .max(MIN)
}

/// Makes a claim leave whose time has passed, as the store may still have it.
///
/// A revoked claim does not leave: it is gone already. Its guard keeps open what it still has of
/// the claim.
fn depart_expired(calls: &StoreCalls, validity: &Validity) {
    let loss = validity.ending().and_then(End::loss);
    if loss.is_some_and(|reason| reason != LossReason::Revoked) {
        let claim = Arc::clone(&validity.claim);
        let departure = depart(calls.clone(), claim, PendingEntry::Replied);
        drop(Detached::new(departure));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::background;
    use crate::{ClaimantInfo, Name, OnContention, Share, Store, stores};

    fn claim(name: &str) -> Claim {
        let name = Name::parse(name).expect("a valid name");
        let info = ClaimantInfo::here("").expect("a valid label");
        Claim::new(name, Share::MUTEX, info.into())
    }

    fn validity(claim: &Claim) -> Arc<Validity> {
        let claim = Arc::new(claim.clone());
        Arc::new(Validity::held(claim, BootInstant::FAR_FUTURE))
    }

    #[test]
    fn renew_interval_follows_phase_and_bound() {
        const SECOND: Duration = Duration::from_secs(1);
        let claim = Arc::new(claim("a"));
        let sent_at = BootInstant::now();
        let held = Validity::held(Arc::clone(&claim), BootInstant::FAR_FUTURE);
        let waiting = Validity::waiting(claim, BootInstant::FAR_FUTURE);

        let cases = [
            ("a tenth of a short grace", &held, 2 * SECOND, 199),
            ("a tenth of the default grace", &held, 10 * SECOND, 999),
            ("at most a second", &held, 20 * SECOND, 1_000),
            ("a tenth of the lease", &held, 30 * SECOND, 3_000),
            ("a third of the lease", &held, Duration::MAX, 10_000),
            ("a third while it waits", &waiting, 30 * SECOND, 9_994),
        ];
        for (case, validity, lease, expected) in cases {
            let until = sent_at.saturating_add(safe_duration(lease));
            let interval = renew_interval(validity, sent_at, until);
            assert_eq!(interval.as_millis(), expected, "{case}");
        }
    }

    #[test]
    fn claims_due_soon_are_renewed_together() {
        let renewals = Renewals::default();
        let now = BootInstant::now();
        for (name, millis_ago) in [("a", 3_000), ("b", 2_950), ("c", 2_000)] {
            let sent_at = now.before(Duration::from_millis(millis_ago));
            let expires_at = sent_at.saturating_add(Duration::from_secs(30));
            let validity = Validity::held(Arc::new(claim(name)), expires_at);
            renewals.add(Arc::new(validity), sent_at);
        }

        let due = renewals.due().validities;
        let names: Vec<_> = due.iter().map(|due| due.claim.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);

        let due = renewals.due().validities;
        assert!(due.is_empty(), "their renewal is under way");
    }

    #[cfg(feature = "file")]
    #[tokio::test]
    async fn damaged_queue_does_not_block_other_renewals() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = Arc::new(stores::File::at(folder.path()).expect("it opens"));
        let damaged = claim("a");
        let broken = claim("b");
        for claim in [&damaged, &broken] {
            let entered = store.enter(claim, OnContention::Queue).await;
            entered.expect("the store replies");
        }
        std::fs::write(folder.path().join("a.queue"), "#!/bin/sh").expect("it is writable");
        store.leave(&broken).await.expect("the store replies");

        let renewals = Renewals::default();
        let held = validity(&broken);
        let validities = vec![validity(&damaged), Arc::clone(&held)];
        let calls = StoreCalls::new(store, "file:");
        background::on_background(round(calls, &renewals, validities)).await;

        assert_eq!(held.ending(), Some(End::Lost(LossReason::Revoked)));
    }

    /// A renewal of the waiting claim is under way. The claim is granted and broken; then the reply
    /// arrives.
    #[tokio::test]
    async fn hold_is_revoked_by_reply_to_its_waiting_renewal() {
        let claim = claim("a");
        let store = stores::Memory::new();
        let entered = store.enter(&claim, OnContention::Queue).await;
        entered.expect("the store replies");

        let renewals = Renewals::default();
        let waiting = validity(&claim);
        renewals.add(Arc::clone(&waiting), BootInstant::now());
        let calls = StoreCalls::new(Arc::new(store.clone()), "memory:");
        let renewing = round(calls, &renewals, vec![waiting]);

        let held = validity(&claim);
        renewals.add(Arc::clone(&held), BootInstant::now());
        store.leave(&claim).await.expect("the store replies");
        background::start().expect("the background thread runs");
        background::on_background(renewing).await;

        assert_eq!(held.ending(), Some(End::Lost(LossReason::Revoked)));
    }
}
