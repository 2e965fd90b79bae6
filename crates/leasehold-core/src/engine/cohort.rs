//! Cohorts: the acquires of one process pass a hold on, without a request to the store.
//!
//! The store has one claim for all of them. Its grant [reserves](crate::Claim::reserved) a token
//! for each pass. docs/decisions.md, D-57, has the reasons. What must be true, and the wrong program
//! that each test finds:
//!
//! - The token of a grant exceeds the token before by `max` + 1, in the step that grants:
//!   `grant_reserves_tokens` finds a script that counts by one.
//! - The token of each hold exceeds that of the hold before, and the guard before is invalid before
//!   the next one exists: `cohort_passes_hold_without_request` finds a pass that keeps its token, or
//!   leaves the old validity.
//! - A claim is passed on at most `max` times: `cohort_overtakes_remote_waiter_at_most_max_times`
//!   finds a pass that does not count.
//! - A lost hold is not passed on, and the next acquire does not wait for the lost guard:
//!   `cohort_passes_no_lost_hold` finds a pass that trusts the lost claim, and a cohort that waits
//!   for a release.
//! - The validity of a hold begins at the last renewal of the claim, never at the pass: the
//!   simulation finds a pass that begins a lease.
//! - A dropped acquire leaves no entry and no hold behind, and the others wait on:
//!   `cancelled_acquire_of_cohort_leaves_nothing` finds one that keeps its hold.
//! - A pass does not postpone the next renewal, and a reply under way counts for the next hold:
//!   `frequent_passes_do_not_postpone_renewals` finds a pass that schedules a new renewal, or
//!   forgets the one under way.

mod acquisition;
mod pass;
mod registry;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tracing::Instrument;

use super::acquire::{Acquired, attempt_until_granted, record_end};
use super::events::AcquireEvents;
use super::limits::Outage;
use super::{AcquireOptions, Engine, WaitLimit};
use crate::runtime::departures::Departure;
use crate::store::replies;
use crate::{ClaimId, OnContention, Refused, Result};

use acquisition::Acquisition;
pub(super) use registry::Cohorts;
use registry::Key;
use waiting::{LocalWait, Waiter};

/// The acquires of one process that wait for one lock with the same options.
///
/// ```text
///        join               grant                    release, an acquire waits
/// Idle ────────► Acquiring ───────► Held, passable ──────────────────────────┐
///  ▲                 ▲                │  │  ▲                                │
///  │                 │ last pass,     │  │  └────────────────────────────────┘
///  │                 │ loss           │  │
///  │                 └── one waits ───┘  │
///  └───── no acquire waits ──────────────┘
/// ```
/// The order of its locks: `state`, then the schedule of the renewals. No validity is lost while
/// `state` is locked, because a loss locks it.
#[derive(Debug)]
pub(super) struct Cohort {
    key: Key,
    registry: Weak<Cohorts>,
    state: Mutex<CohortState>,
    /// Notified when a waiter has to begin an acquisition.
    acquisition_due: Notify,
    /// Notified when the last waiter has left.
    unused: Notify,
}

#[derive(Debug, Default)]
struct CohortState {
    /// In order of arrival.
    waiters: VecDeque<Waiter>,
    joined: u64,
    /// The claim that is being acquired for the waiters: whether the store has replied to its
    /// request to enter.
    acquiring: Option<Arc<AtomicBool>>,
    /// The departure of the claim that is being acquired although no acquire waits any more.
    departing: Option<Departure>,
    /// The held claim that its holder passes on when it releases it.
    passable: Option<ClaimId>,
}

/// Acquires a lock for one of the acquires of a cohort.
///
/// # Cancel safety
/// As [`acquire`](super::acquire::acquire). If other acquires wait, the claim stays in the queue
/// for them.
pub(crate) async fn acquire(
    engine: &Arc<Engine>,
    options: &AcquireOptions,
    limit: WaitLimit,
) -> Result<Acquired> {
    let cohort = engine.cohorts.get(options);
    let events = AcquireEvents::begin(&engine.calls, &options.name);
    let acquired = {
        let acquiring = async {
            match limit.on_contention() {
                OnContention::Fail => cohort.try_now(engine, options, limit, &events).await,
                OnContention::Queue => cohort.wait(engine, options, limit, &events).await,
            }
        };
        let acquiring = pin!(acquiring.instrument(events.span()));
        limit.bound(options.reply_timeout, acquiring).await
    };
    record_end(events, &acquired, |hold| hold);
    acquired
}

impl Cohort {
    /// Acquires without waiting: not behind the other acquires of the cohort either.
    async fn try_now(
        self: &Arc<Self>,
        engine: &Arc<Engine>,
        options: &AcquireOptions,
        limit: WaitLimit,
        events: &AcquireEvents,
    ) -> Result<Acquired> {
        if self.is_known_as_held() {
            return self.refuse(engine, options).await;
        }

        let store_options = options.for_store();
        let outage = Outage::default();
        match attempt_until_granted(engine, &store_options, limit, events, outage).await? {
            Ok(hold) => match self.adopt(hold, options.max_hold) {
                Some(hold) => Ok(Ok(hold)),
                // It was lost before its first use.
                None => Ok(Err(Refused::new(options.name.clone()))),
            },
            Err(refused) => Ok(Err(refused)),
        }
    }

    /// Returns who holds the lock. If no hold of this process shows that it is held, only a reply of
    /// the store does.
    async fn refuse(&self, engine: &Arc<Engine>, options: &AcquireOptions) -> Result<Acquired> {
        let is_held_here = self.state.lock().passable.is_some();
        let limit = options.reply_timeout * 9 / 10;
        match engine.calls.inspect(&options.name, limit).await {
            Ok(lock_state) => Ok(Err(replies::refused(lock_state, None))),
            Err(error) if error.is_unavailable() && !is_held_here => Err(error),
            Err(_) => Ok(Err(Refused::new(options.name.clone()))),
        }
    }

    /// Waits until another acquire passes its hold on, or the store grants the claim of the cohort.
    async fn wait(
        self: &Arc<Self>,
        engine: &Arc<Engine>,
        options: &AcquireOptions,
        limit: WaitLimit,
        events: &AcquireEvents,
    ) -> Result<Acquired> {
        let mut check_at = limit.deadline();
        // It is dropped after `waiting`, and so it stops if nothing else waits.
        let mut acquisition = None;
        let (mut waiting, ahead) = LocalWait::join(self, options.max_hold);
        let _queued = (ahead > 0).then(|| events.queued(ahead));

        loop {
            if acquisition.is_none() {
                acquisition = Acquisition::begin_if_due(self, engine, options);
            }

            tokio::select! {
                biased;
                granted = waiting.granted() => {
                    let hold = granted?;
                    if hold.check().is_ok() {
                        return Ok(Ok(hold));
                    }
                    // The process was stopped after the pass, for longer than the validity.
                    drop(hold);
                    waiting.rejoin();
                }
                () = run(&mut acquisition) => acquisition = None,
                () = self.acquisition_due.notified() => {}
                () = passed(check_at) => {
                    if acquisition.is_none() || self.is_known_as_held() {
                        break;
                    }
                    // A store that is merely slow may reply after the deadline.
                    check_at = Some(Instant::now() + REPLY_CHECK);
                }
            }
        }

        // If the lock is not known to be held, another acquire has sent the request, which has no
        // reply. It may have been lost before this acquire began. So this acquire sends a request
        // of its own.
        drop(waiting);
        drop(acquisition);
        self.try_now(engine, options, WaitLimit::Never, events)
            .await
    }

    /// Whether an acquire would have to wait. A hold of this process shows it, or a reply of the
    /// store that queued the claim of this cohort.
    fn is_known_as_held(&self) -> bool {
        let state = self.state.lock();
        let has_replied = state.acquiring.as_ref();
        state.passable.is_some()
            || has_replied.is_some_and(|replied| replied.load(Ordering::Acquire))
    }
}

impl CohortState {
    /// Whether acquires wait, and nothing that is under way grants them the lock.
    fn needs_acquisition(&self) -> bool {
        !self.waiters.is_empty() && self.acquiring.is_none() && self.passable.is_none()
    }

    /// Records that the store no longer has a claim, or that its hold is not passed on.
    fn not_passable(&mut self, claim: ClaimId, acquisition_due: &Notify) {
        if self.passable == Some(claim) {
            self.passable = None;
        }
        if self.needs_acquisition() {
            acquisition_due.notify_one();
        }
    }
}

/// Runs the acquisition, if this acquire has begun one.
async fn run(acquisition: &mut Option<Acquisition>) {
    match acquisition {
        Some(acquisition) => acquisition.await,
        None => std::future::pending().await,
    }
}

async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// How often an acquire whose deadline has passed looks for the reply that decides it.
const REPLY_CHECK: Duration = Duration::from_millis(10);
