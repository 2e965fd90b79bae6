//! The claims to renew, when, and for how long a request waits for its reply.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::ClaimId;
use crate::engine::calls::REPLY_TIMEOUT;
use crate::engine::validity::{Phase, Validity, safe_duration};
use crate::runtime::clock::BootInstant;
use crate::store::Revocable;

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
pub(super) struct Due {
    pub(super) validities: Vec<Arc<Validity>>,
    pub(super) next_wakeup: BootInstant,
}

impl Renewals {
    /// Starts renewing a claim. Its last request that got a reply was sent at `sent_at`.
    ///
    /// It replaces the earlier validity of the claim.
    pub(crate) fn add(&self, validity: Arc<Validity>, sent_at: BootInstant) {
        let interval = renew_interval(&validity, sent_at, validity.expires_at());
        let due = sent_at.saturating_add(interval);

        let mut schedule = self.schedule.lock();
        schedule.insert(validity, due, &self.rescheduled);
    }

    /// Makes the renewals of all claims due now, at most once a second. The engine calls this after
    /// a request without a reply.
    #[cold]
    pub(crate) fn hasten(&self) {
        const INTERVAL_MIN: Duration = Duration::from_secs(1);
        let mut schedule = self.schedule.lock();

        let now = BootInstant::now();
        if now < schedule.may_hasten_at {
            return;
        }
        schedule.may_hasten_at = now.saturating_add(INTERVAL_MIN);
        schedule.make_all_due(now, &self.rescheduled);
    }

    /// Makes the renewals of all claims due now.
    pub(crate) fn make_all_due(&self) {
        let mut schedule = self.schedule.lock();
        schedule.make_all_due(BootInstant::now(), &self.rescheduled);
    }

    /// Waits until a claim is due earlier than planned.
    pub(super) async fn rescheduled(&self) {
        self.rescheduled.notified().await;
    }

    /// Stops renewing a claim that has left or is leaving.
    pub(crate) fn remove(&self, id: ClaimId) {
        self.schedule.lock().remove(id);
    }

    /// Ends the validity of a claim that is gone.
    ///
    /// This may be a hold that was granted while a renewal of the waiting claim was under way. A
    /// claim that was gone never comes back.
    pub(crate) fn revoke(&self, id: ClaimId) {
        let validity = self.schedule.lock().remove(id);
        if let Some(validity) = validity {
            validity.revoke();
        }
    }

    /// Renews a hold that was passed on when the hold before it would have been renewed.
    ///
    /// Frequent passes do not postpone a renewal. Returns `false` if the claim is no longer
    /// renewed, because it was broken.
    pub(crate) fn replace(&self, validity: Arc<Validity>) -> bool {
        let mut schedule = self.schedule.lock();
        let Some(entry) = schedule.entries.get(&validity.claim.id) else {
            return false;
        };

        let renew_at = entry.renew_at;
        schedule.insert(validity, renew_at, &self.rescheduled);
        true
    }

    /// Returns the validity that a reply about `validity` concerns: the hold may have been passed
    /// on while the renewal was under way.
    ///
    /// A reply about a waiting claim does not concern its hold, whose lease may be shorter.
    pub(super) fn current(&self, validity: &Arc<Validity>) -> Arc<Validity> {
        let schedule = self.schedule.lock();
        let entry = schedule.entries.get(&validity.claim.id);

        let is_held = |validity: &Validity| validity.phase() == Phase::Held;
        entry
            .filter(|entry| is_held(validity) && is_held(&entry.validity))
            .map_or_else(|| Arc::clone(validity), |entry| Arc::clone(&entry.validity))
    }

    /// Moves a validity to another time, unless it was removed or replaced meanwhile. Returns
    /// whether it was replaced.
    pub(super) fn reschedule(&self, validity: &Arc<Validity>, due: BootInstant) -> bool {
        let mut schedule = self.schedule.lock();
        let Some(entry) = schedule.entries.get(&validity.claim.id) else {
            return false;
        };

        let is_current = Arc::ptr_eq(&entry.validity, validity);
        if is_current {
            schedule.insert(Arc::clone(validity), due, &self.rescheduled);
        }
        !is_current
    }

    /// Returns the claims that are due, ordered by the end of their validity.
    ///
    /// Each of them stays scheduled for the end of its validity. Claims that are due soon are
    /// included, so that one request renews many.
    pub(super) fn due(&self) -> Due {
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

impl Revocable for Renewals {
    fn revoke(&self, id: ClaimId) {
        Self::revoke(self, id);
    }
}

#[derive(Debug)]
struct Scheduled {
    /// When the task wakes up for it.
    at: BootInstant,
    /// When it is renewed, unless it ends before.
    renew_at: BootInstant,
    validity: Arc<Validity>,
}

#[derive(Debug)]
struct Schedule {
    entries: BTreeMap<ClaimId, Scheduled>,
    order: BTreeSet<(BootInstant, ClaimId)>,
    /// An insertion at an earlier time wakes the task.
    next_wakeup: BootInstant,
    may_hasten_at: BootInstant,
}

impl Schedule {
    /// Reschedules a claim that is being renewed to the end of its validity.
    ///
    /// The round may have no reply until then. The entry that stays here wakes the task at the end
    /// all the same, so that the loss is recorded on time without the round. If the hold is passed
    /// on meanwhile, its successor takes over this time, but has a limit of its own. So the time is
    /// that of the claim; `insert` wakes the task at the limit if that comes first.
    fn claim_due(&mut self, id: ClaimId, now: BootInstant, sooner: &Notify) -> Arc<Validity> {
        let entry = self.entries.get(&id).expect("entries and order agree");
        let validity = Arc::clone(&entry.validity);

        if validity.expires_at() <= now {
            self.remove(id);
        } else {
            self.insert(Arc::clone(&validity), validity.claim_ends_at(), sooner);
        }
        validity
    }

    fn make_all_due(&mut self, now: BootInstant, sooner: &Notify) {
        let entries = self.entries.values();
        let validities: Vec<_> = entries.map(|entry| Arc::clone(&entry.validity)).collect();
        for validity in validities {
            self.insert(validity, now, sooner);
        }
    }

    /// Returns the claims that are due in the next tenth of a second.
    ///
    /// A claim is included only if it is due within an eighth of its remaining validity.
    fn due_soon(&self, now: BootInstant) -> Vec<ClaimId> {
        const BATCH_WINDOW: Duration = Duration::from_millis(100);
        let window_end = now.saturating_add(BATCH_WINDOW);

        let soon = self.order.iter().take_while(|(at, _)| *at <= window_end);
        let renewals = soon.filter(|(at, id)| {
            let entry = self.entries.get(id).expect("entries and order agree");
            let remaining = entry.validity.expires_at().duration_since(*at);
            at.duration_since(now) < remaining / 8
        });
        renewals.map(|(_, id)| *id).collect()
    }

    /// Returns when to wake up next.
    ///
    /// A planned wake-up is kept even if its claim has left. A client that acquires and releases
    /// all the time would otherwise wake the task each time.
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
        let expires_at = validity.expires_at();
        let at = if validity.auto_renews() {
            renew_at.min(expires_at)
        } else {
            expires_at
        };

        self.remove(id);
        let entry = Scheduled {
            at,
            renew_at,
            validity,
        };
        self.entries.insert(id, entry);
        self.order.insert((at, id));

        if at < self.next_wakeup {
            self.next_wakeup = at;
            sooner.notify_one();
        }
    }

    fn remove(&mut self, id: ClaimId) -> Option<Arc<Validity>> {
        let entry = self.entries.remove(&id)?;
        self.order.remove(&(entry.at, id));
        Some(entry.validity)
    }
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            entries: BTreeMap::default(),
            order: BTreeSet::new(),
            next_wakeup: BootInstant::FAR_FUTURE,
            may_hasten_at: BootInstant::from_nanos(0),
        }
    }
}

/// Returns how long after `sent_at` the claim is renewed again, if it is valid until `until`.
///
/// | claim | renewed every |
/// |---|---|
/// | waiting | a third of its validity |
/// | held, with a grace or session below its lease | a tenth of its validity, at most 1 s |
/// | held, ended by its lease | a tenth of the lease |
/// | held without end, as in the file store | a third of the lease |
///
/// On a hold without end, a renewal only detects that the claim is gone.
///
/// A holder that renews every tenth of its validity survives an outage of 0.6 of it that begins
/// just before a renewal. The holder then has 0.3 of its validity left to reconnect, and
/// `leasehold run` still has time to stop its command.
///
/// The pause is [`PAUSE_MIN`] or longer, also if a reply leaves the claim no further time. A tenth
/// of the shortest lease is as long.
pub(super) fn renew_interval(
    validity: &Validity,
    sent_at: BootInstant,
    until: BootInstant,
) -> Duration {
    let lease = validity.claim.lease;
    let length = until.duration_since(sent_at);
    let is_bounded_by_lease = length >= safe_duration(lease);

    let interval = match validity.phase() {
        Phase::Waiting => lease.min(length) / 3,
        Phase::Held if until == BootInstant::FAR_FUTURE => lease / 3,
        Phase::Held if is_bounded_by_lease => lease / 10,
        Phase::Held => (length / 10).min(HEARTBEAT_MAX),
    };
    interval.max(PAUSE_MIN)
}

/// Returns how soon to retry a renewal without a reply.
///
/// It is at most half a heartbeat interval, and shrinks as the end of the claim comes near. The end
/// of a `max_hold` does not count here, as the claim goes on after it.
pub(super) fn retry_delay(validity: &Validity, now: BootInstant) -> Duration {
    let remaining = validity.claim_ends_at().duration_since(now);

    (validity.claim.lease / 30)
        .min(HEARTBEAT_MAX / 2)
        .min(remaining / 20)
        .max(PAUSE_MIN)
}

/// Returns how long to wait for a reply, so that a retry is possible before the first claim ends.
///
/// No retry is sooner than [`PAUSE_MIN`], so a shorter wait would only miss a late reply.
pub(super) fn reply_timeout(validities: &[Arc<Validity>], now: BootInstant) -> Duration {
    let remaining = validities
        .iter()
        .map(|validity| validity.claim_ends_at().duration_since(now))
        .min()
        .unwrap_or(REPLY_TIMEOUT);
    (remaining / 3).clamp(PAUSE_MIN, REPLY_TIMEOUT)
}

/// The longest heartbeat interval of a holder whose liveness the store observes.
const HEARTBEAT_MAX: Duration = Duration::from_secs(1);
/// The shortest time between two renewals of a claim, so that the task never works without a pause.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(10);
