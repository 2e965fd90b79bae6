//! The rules that are checked after every step.

use std::time::Duration;

use leasehold::store::{ClaimId, units};

use crate::event::Violation;
use crate::hold::HoldRecord;
use crate::server::{Nanos, nanos};
use crate::world::{State, World};

impl World {
    /// Records the first violation.
    pub(crate) fn violate(&self, rule: &'static str, details: impl Into<String>) {
        let at = self.time();
        let mut state = self.state();
        if state.violation.is_none() {
            let details = details.into();
            state.violation = Some(Violation { rule, details, at });
        }
        drop(state);
        self.violated.notify_one();
    }

    /// Checks every invariant after a step of a client.
    pub(crate) fn check(&self, client: usize) {
        let now = self.time();
        let mut state = self.state();
        let found = self
            .check_holds(&mut state, now)
            .or_else(|| self.check_exclusion(&state, now))
            .or_else(|| self.check_entries(&state, client, now))
            .or_else(|| self.check_unwanted_entries(&mut state, client, now));
        drop(state);

        if let Some((rule, details)) = found {
            self.violate(rule, details);
        }
    }

    /// Checks that a claim that leaves is no longer trusted.
    pub(crate) fn check_leaving(&self, client: usize, id: ClaimId) {
        let time = self.time();
        let now = self.clock(client).at(time);
        let mut state = self.state();
        state.clients[client]
            .leaving_since
            .entry(id)
            .or_insert(time);
        let mut holds = state
            .holds
            .iter()
            .filter(|hold| hold.probe.claim_id() == id);
        let is_trusted = holds.any(|hold| hold.trusted_until(now).is_some());
        drop(state);

        if is_trusted {
            self.violate(
                "a hold is invalid before its release is sent",
                format!("{id}"),
            );
        }
    }

    /// Checks that no acquire has waited through an outage of this length.
    pub(crate) fn check_acquires_have_failed(&self, client: usize, outage: Duration) {
        let now = self.time();
        let state = self.state();
        let client = &state.clients[client];
        let is_disturbed = client.is_dead || client.is_paused || client.link.outage.is_none();
        let undisturbed_since = client.resumed_at;

        let began = now.saturating_sub(nanos(outage));
        // An acquire of a cohort may wait for a hold of its own process.
        let waited = client
            .acquiring
            .values()
            .any(|acquiring| acquiring.since <= began + 1 && !acquiring.is_in_cohort);
        drop(state);
        if waited && !is_disturbed && undisturbed_since <= began {
            self.violate(
                "an acquire fails in a long outage",
                format!("after {outage:?}"),
            );
        }
    }

    fn check_holds(&self, state: &mut State, now: Nanos) -> Option<Found> {
        for at in 0..state.holds.len() {
            let found = self.check_hold(state, at, now);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn check_hold(&self, state: &mut State, at: usize, now: Nanos) -> Option<Found> {
        let hold = &mut state.holds[at];
        let clock = self.clock(hold.client);
        let client = &state.clients[hold.client];
        let id = hold.probe.claim_id();
        let trusted = hold.trusted_until(clock.at(now));
        let awake_since = |time: Nanos| time.max(client.resumed_at);

        let Some(until) = trusted else {
            let since = *hold.invalid_since.get_or_insert(now);
            let is_late = now.saturating_sub(awake_since(since)) > TIMER_GRAIN;
            if hold.is_watched && !hold.is_closed && !client.is_paused && is_late {
                return Some(("a loss is noticed when the validity ends", format!("{id}")));
            }
            return None;
        };

        if hold.is_closed && !client.is_dead {
            return Some(("a hold that was given back is invalid", format!("{id}")));
        }
        if hold.is_closed {
            return None;
        }
        if hold.invalid_since.is_some() {
            return Some(("a lost hold stays lost", format!("{id}")));
        }
        if until > hold.bound {
            let details = format!(
                "{id} is trusted until {until:?}, but is bound by {:?}",
                hold.bound
            );
            return Some(("a bound hold ends at its bound", details));
        }
        if let Some(since) = client.gone_since.get(&id).copied()
            && now > awake_since(since)
            && !client.is_paused
        {
            return Some((
                "a hold ends when the store reports that it is gone",
                format!("{id}"),
            ));
        }

        let until = clock.time_of(until);
        let kept_until = state.backend.kept_until(id)?;
        if until > kept_until {
            let details = format!("{id}: trusted until {until}, kept until {kept_until} ns");
            return Some((
                "a hold is trusted no longer than the store keeps it",
                details,
            ));
        }
        None
    }

    fn check_exclusion(&self, state: &State, now: Nanos) -> Option<Found> {
        for name in 0..self.profile.names {
            let holds = state
                .holds
                .iter()
                .filter(|hold| hold.name == name && !hold.is_evicted && self.is_valid(hold, now));

            let mut taken = 0;
            let mut capacity = u64::MAX;
            for hold in holds {
                let (weight, of) = units(hold.share);
                taken += u64::from(weight);
                capacity = u64::from(of);
            }
            if taken > capacity {
                let details = format!("lock {name}: {taken} of {capacity} are taken");
                return Some(("holders exclude each other", details));
            }
        }
        None
    }

    /// Returns whether the client of a hold relies on it, by its clock.
    pub(crate) fn is_valid(&self, hold: &HoldRecord, now: Nanos) -> bool {
        let clock = self.clock(hold.client);
        !hold.is_closed && hold.trusted_until(clock.at(now)).is_some()
    }

    /// Checks that a client without operations, guards and departures has no entry.
    fn check_entries(&self, state: &State, number: usize, now: Nanos) -> Option<Found> {
        let client = &state.clients[number];
        let is_idle = client.background == 0
            && client.acquiring.is_empty()
            && client.releasing == 0
            && !client.is_dead;
        if !is_idle || !client.is_open {
            return None;
        }

        let is_held = |id: ClaimId| {
            let mut holds = state.holds.iter();
            holds.any(|hold| hold.probe.claim_id() == id && !hold.is_closed)
        };
        // A departure gives up when the lease would have ended the claim.
        let has_given_up = |id: ClaimId| {
            let since = client.leaving_since.get(&id);
            since.is_some_and(|since| now.saturating_sub(*since) >= nanos(self.profile.lease))
        };
        let entries = state.backend.entries_of(number).into_iter();
        let mut left = entries
            .filter(|(_, id, expires_at)| *expires_at > now && !is_held(*id) && !has_given_up(*id));
        left.next().map(|(name, id, _)| {
            let details = format!("client {number} left {id} in the queue of lock {name}");
            ("no entry is left behind", details)
        })
    }

    /// Checks that an entry ends, at the latest with its lease, when its client no longer needs it.
    ///
    /// So a task in the background may not keep it alive.
    fn check_unwanted_entries(
        &self,
        state: &mut State,
        number: usize,
        now: Nanos,
    ) -> Option<Found> {
        let holds = &state.holds;
        let has_guard = holds
            .iter()
            .any(|hold| hold.client == number && !hold.is_closed);
        let client = &mut state.clients[number];
        if has_guard || !client.acquiring.is_empty() || client.releasing > 0 {
            client.unwanted_since = None;
            return None;
        }
        let since = *client.unwanted_since.get_or_insert(now);

        let outage_ended = client.link.last_outage.map_or(0, |(_, ended)| ended);
        let undisturbed_since = since.max(outage_ended).max(client.resumed_at);
        let is_disturbed = client.is_dead || client.is_paused || client.link.outage.is_some();
        let longest = nanos(self.profile.lease + self.profile.request_timeout + LEAVING_MAX);
        let is_due = now.saturating_sub(undisturbed_since) > longest;
        if is_disturbed || !is_due || !self.profile.is_calm() || !self.profile.lease_expiry {
            return None;
        }

        let entries = state.backend.entries_of(number).into_iter();
        let mut left = entries.filter(|(_, _, expires_at)| *expires_at > now);
        left.next().map(|(name, id, _)| {
            let details = format!("client {number} keeps {id} in the queue of lock {name}");
            ("no entry outlives its acquire and its guard", details)
        })
    }
}

/// How long an entry may remain that no acquire and no guard of its client needs, beside its lease.
const LEAVING_MAX: Duration = Duration::from_secs(1);

/// An invariant and the values that contradict it.
type Found = (&'static str, String);

/// The timers of tokio have milliseconds, and an acquire rounds once more.
const TIMER_GRAIN: Nanos = 3_000_000;
