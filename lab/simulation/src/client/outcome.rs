//! Recording the holds of clients, and judging how they begin and end.

use std::time::Duration;

use leasehold::simulation::{BootInstant, Probe, safe_duration};
use leasehold::store::{ClaimId, Share};
use leasehold::{LossReason, Result};

use super::acquire::Held;
use crate::event::What;
use crate::hold::HoldRecord;
use crate::plan::{Bound, LockKind, Operation, Profile};
use crate::server::{Cause, Nanos, nanos};
use crate::world::{State, World};

impl World {
    /// Records a guard that a client has got, and checks it.
    pub(super) fn register(
        &self,
        client: usize,
        held: &Held,
        operation: &Operation,
        requested: Nanos,
    ) -> ClaimId {
        let guard = held.guard();
        let probe = Probe::of(guard);
        let id = probe.claim_id();
        let token = guard.token().get();
        let time = self.time();
        let now = self.clock(client).at(time);
        self.record(client, What::Held(id, token));

        let record = HoldRecord {
            probe,
            client,
            name: operation.name,
            share: share_of(&self.profile, operation),
            token,
            passes_max: operation.cohort.unwrap_or_default(),
            granted_at: time,
            lease: operation.lease,
            bound: bound_of(operation, now),
            is_watched: false,
            is_evicted: self.state().backend.was_evicted(id),
            invalid_since: None,
            is_closed: false,
        };
        self.check_grant(&record, now, requested);
        // No other claim can complete the job since the grant, unless an operator has removed this.
        if let Some(job) = operation.job.filter(|_| !record.is_evicted) {
            self.check_start(record.name, job);
        }
        let mut state = self.state();
        state.count_shared(&record, |hold| self.is_valid(hold, time));
        state.counts.grants += 1;
        state.holds.push(record);
        drop(state);
        self.granted.notify_waiters();
        id
    }

    /// Checks that a guard is valid when it is returned, and that tokens rise.
    fn check_grant(&self, hold: &HoldRecord, now: BootInstant, requested: Nanos) {
        let id = hold.probe.claim_id();
        if hold.trusted_until(now).is_none() && hold.bound > now {
            self.violate("a guard is valid when it is returned", format!("{id}"));
        }

        let state = self.state();
        let earlier = state
            .holds
            .iter()
            .filter(|earlier| earlier.name == hold.name);
        let mut not_smaller = earlier.filter(|earlier| {
            let is_equal = earlier.token == hold.token;
            let is_before = earlier.granted_at < requested || earlier.excludes(hold);
            is_equal || (is_before && earlier.token > hold.token)
        });
        let found = not_smaller
            .next()
            .map(|earlier| (earlier.token, hold.token));
        let server_token = state.backend.entry(id).and_then(|entry| entry.token);
        let of_claim = state
            .holds
            .iter()
            .filter(|earlier| earlier.probe.claim_id() == id);
        let passes = of_claim.count();
        drop(state);

        // A cohort passes a hold on until it learns that an operator has removed the claim.
        if let Some((earlier, later)) = found
            && !hold.is_evicted
            && self.profile.has_rising_tokens()
        {
            self.violate("tokens rise", format!("{later} follows {earlier}"));
        }
        let reserved = u64::from(hold.passes_max);
        let is_of_grant = |token: u64| (token - reserved..=token).contains(&hold.token);
        if server_token.is_some_and(|token| !is_of_grant(token.get())) {
            self.violate("a guard has the token of its grant", format!("{id}"));
        }
        self.state().counts.passes += u32::from(passes > 0);
        if passes > hold.passes_max as usize {
            self.violate("a claim is passed on at most max times", format!("{id}"));
        }
    }

    /// Checks that a completion was recorded by the claim that held.
    pub(super) fn check_completion(
        &self,
        client: usize,
        id: ClaimId,
        name: u8,
        job: u32,
        reply: &Result<()>,
    ) {
        let is_recorded = self.state().backend.is_completed_by(name, id);
        match reply {
            Ok(()) if !is_recorded => {
                self.violate("a completed job is recorded", format!("{id}"));
            }
            Ok(()) => {
                self.record(client, What::Released(id));
                self.end_completion(job);
            }
            Err(error) => self.record(client, What::Failed(error.to_string())),
        }
    }

    /// Checks that a loss has a cause.
    pub(super) fn check_loss(&self, client: usize, id: ClaimId, reason: LossReason) {
        self.record(client, What::Lost(id, reason.to_string()));
        let now = self.time();
        let state = self.state();
        // The holds of a cohort have one claim. The last one is lost.
        let mut holds = state.holds.iter().rev();
        let Some(hold) = holds.find(|hold| hold.probe.claim_id() == id) else {
            return;
        };
        let held_for = now - hold.granted_at;
        let is_excused = self.is_excused(&state, hold);
        let was_ended = hold.is_evicted || state.backend.may_be_gone(id);
        let lease = hold.lease;
        drop(state);

        let is_early = held_for < nanos(lease) / 5 * 2;
        let too_early = is_early && self.profile.is_calm();
        match reason {
            LossReason::Revoked if !was_ended => {
                self.violate("a revoked hold was gone", format!("{id}"));
            }
            LossReason::LeaseExpired if too_early => {
                self.violate("a lease that is not renewed runs in full", format!("{id}"));
            }
            LossReason::RenewalTimedOut if !is_excused => {
                self.violate("a hold survives a short outage", format!("{id}"));
            }
            _ => {}
        }
    }

    /// Returns whether an outage explains that a hold could not be renewed.
    ///
    /// The engine renews every 10 ms at most, so only a hold of 100 ms or more is renewed every
    /// tenth of its validity. No lease and no crash grace that users can set is shorter. The outage
    /// may begin as soon as the guard is returned.
    fn is_excused(&self, state: &State, hold: &HoldRecord) -> bool {
        if !self.profile.is_calm() || hold.is_evicted {
            return true;
        }
        let Some((began, ended)) = state.clients[hold.client].link.last_outage else {
            return false;
        };
        let hold_length = self.profile.hold_length_of(hold.lease);
        let length = nanos(safe_duration(hold_length));
        let renews_every_tenth = hold_length >= SHORTEST_LEASE;
        let is_short = ended.saturating_sub(began) <= length / 100 * 55;
        // A second outage may have begun before the first renewal after another one.
        let is_alone = state.counts.faults_with_hold <= 1;
        !(renews_every_tenth && is_short && is_alone)
    }

    /// Checks the outcome of a release.
    pub(super) fn check_release(
        &self,
        client: usize,
        id: ClaimId,
        was_trusted: bool,
        reply: &Result<()>,
    ) {
        let now = self.time();
        let state = self.state();
        let is_there = state
            .backend
            .entry(id)
            .is_some_and(|entry| entry.expires_at > now);
        let ended = state.backend.ended(id);
        let mut holds = state.holds.iter();
        let may_be_passed_on = holds.any(|hold| hold.probe.claim_id() == id && hold.passes_max > 0);
        // A request to leave without a reply may have been the one that removed the claim.
        let has_replies =
            self.profile.is_calm() && !state.clients[client].was_away_since_leaving(id);
        drop(state);
        let was_gone = ended.is_some_and(|ended| ended.cause != Cause::Left);

        match reply {
            Ok(()) if is_there && !may_be_passed_on => {
                self.violate(
                    "a release returns after the store has executed it",
                    format!("{id}"),
                );
            }
            Ok(()) if was_gone && has_replies && !may_be_passed_on => {
                self.violate(
                    "a release of a claim that is gone is an error",
                    format!("{id}"),
                );
            }
            Ok(()) => self.record(client, What::Released(id)),
            Err(error) => {
                self.record(client, What::Failed(error.to_string()));
                let has_left = ended.is_some_and(|ended| ended.cause == Cause::Left);
                if error.is_lost() && was_trusted && has_left {
                    self.violate("a release of a held lock succeeds", error.to_string());
                }
            }
        }
    }

    pub(super) fn watch(&self, id: ClaimId, is_watched: bool) {
        if let Some(hold) = self.state().open_hold(id) {
            hold.is_watched = is_watched;
        }
    }

    pub(super) fn downgrade(&self, id: ClaimId) {
        if let Some(hold) = self.state().open_hold(id) {
            hold.share = Share::READER;
        }
    }

    pub(super) fn is_trusted(&self, id: ClaimId) -> bool {
        let time = self.time();
        let mut state = self.state();
        let Some(hold) = state.open_hold(id) else {
            return false;
        };
        let now = self.clock(hold.client).at(time);
        hold.trusted_until(now).is_some()
    }
}

fn share_of(profile: &Profile, operation: &Operation) -> Share {
    match (profile.kind, operation.amount) {
        (LockKind::Mutex, _) => Share::MUTEX,
        (LockKind::Slots(slots), permits) => {
            Share::slots(permits, slots).expect("the plan has valid shares")
        }
        (LockKind::ReadWrite, 1) => Share::READER,
        (LockKind::ReadWrite, _) => Share::WRITER,
    }
}

/// Returns the time of the client's clock at which its hold ends at the latest.
fn bound_of(operation: &Operation, now: BootInstant) -> BootInstant {
    match operation.bound {
        Bound::None => BootInstant::FAR_FUTURE,
        Bound::NoRenewal => now.saturating_add(operation.lease),
        Bound::MaxHold(time) => now.saturating_add(time),
        Bound::Both(time) => now.saturating_add(time.min(operation.lease)),
    }
}

const SHORTEST_LEASE: Duration = Duration::from_millis(100);
