//! Suites that every store of leasehold passes: one function per guarantee, run against a real
//! service.
//!
//! [`conformance_tests!`](crate::conformance_tests) makes one test per suite from a [`Service`].
//! The suites on mutual exclusion run four times: with a mutex, a semaphore of one slot, a writer,
//! and through the blocking API.
//!
//! ```
//! use leasehold_conformance::{holders_exclude_each_other, LockKind, Service};
//! use leasehold::{Result, store::Store, stores::Memory};
//! use std::sync::Arc;
//!
//! struct MyService(Memory);
//!
//! #[async_trait::async_trait]
//! impl Service for MyService {
//!     async fn connect(&self) -> Result<Arc<dyn Store>> {
//!         Ok(Arc::new(self.0.clone()))
//!     }
//! }
//!
//! # #[tokio::main] async fn main() {
//! holders_exclude_each_other(&MyService(Memory::new()), LockKind::Mutex).await;
//! # }
//! ```
//!
//! A suite panics if a guarantee is broken. For a guarantee that the store does not give, the suite
//! asserts the refusal, or the weaker behaviour that the store states.
//!
//! Tests of a store that the suites do not cover can use the helpers in [`support`].
//! [`Intercept`](leasehold_core::store::Intercept) injects faults between the engine and the store.
#![allow(
    clippy::missing_panics_doc,
    reason = "a suite reports a failure by a panic"
)]

mod blocking_election;
mod cohorts;
mod downgrade;
mod exclusion;
mod faults;
mod faulty_client;
mod leases;
mod multi;
mod observing;
mod protocol;
mod records;
mod reentry;
mod shares;
mod sharing;
mod slots;
pub mod support;
mod waiting;

use std::sync::Arc;

use async_trait::async_trait;

use leasehold_core::Result;
use leasehold_core::store::Store;

pub use blocking_election::blocking_leader_is_elected_and_observed;
pub use cohorts::{
    blocking_acquires_share_a_cohort, cancelled_acquire_of_cohort_leaves_nothing,
    cohort_holds_have_limits_of_their_own, cohort_keeps_wait_limits,
    cohort_overtakes_remote_waiter_at_most_max_times, cohort_passes_hold_without_request,
    cohort_passes_no_lost_hold, cohort_tokens_rise_across_processes,
    failed_acquire_of_cohort_fails_no_later_one, grant_reserves_tokens,
};
pub use downgrade::{downgrade_is_not_reported_as_loss, downgrade_lets_readers_in};
pub use exclusion::{
    holders_exclude_each_other, only_stores_with_tokens_give_fencing_tokens,
    released_guard_is_invalid, tokens_increase,
};
pub use faults::{
    broken_writer_does_not_hold_again, cancelled_acquire_leaves_no_entry,
    cancelled_downgrade_leaves_no_entry, disconnected_hold_is_lost_in_time,
    leave_is_retried_beyond_the_lease, lost_reply_leaves_no_entry,
};
pub use leases::{
    broken_hold_is_reported_lost, ended_leases_do_not_keep_the_kind, fixed_lease_expires,
    hold_broken_by_own_client_is_lost, hold_is_renewed_beyond_the_lease, max_hold_ends_the_hold,
    own_break_ends_the_hold_before_its_request,
    reader_with_a_short_lease_does_not_shorten_anothers, unrenewed_claim_expires,
};
pub use multi::{
    loss_of_one_lock_is_loss_of_the_set, opposing_orders_do_not_deadlock,
    several_locks_are_granted_or_none,
};
pub use observing::{leader_is_elected_and_observed, observer_receives_every_change};
pub use protocol::{
    claims_ahead_are_counted_after_a_hand_over, names_are_listed, refused_claim_leaves_no_entry,
    repeated_enter_is_idempotent, repeated_leave_is_idempotent, share_can_only_shrink,
};
pub use records::{
    completion_is_recorded_once, completion_survives_lost_replies,
    job_without_completion_runs_again, jobs_that_are_completed_are_done,
    lock_is_free_after_a_refused_completion, only_a_holder_records_a_completion,
    records_are_listed, waiter_finds_the_job_done,
};
pub use reentry::{
    nested_acquire_never_waits, nested_acquire_sends_no_request,
    owner_is_one_in_all_clients_of_a_store, owners_exclude_each_other,
};
pub use sharing::{mutex_excludes_readers_and_writers, readers_share, writers_are_not_starved};
pub use slots::{
    large_claims_are_not_overtaken, lock_of_another_program_is_no_stale_number,
    mixed_kinds_are_refused, number_of_the_next_holder_is_not_stale, numbers_of_slots_differ,
    semaphore_slots_are_counted,
};
pub use support::LockKind;
pub use waiting::{
    dropped_guard_is_released, grants_are_fifo, hostile_names_are_distinct,
    queue_is_shown_in_order, wait_deadline_is_kept,
};

/// A running service. A suite connects to it once for each client that it needs.
#[async_trait]
pub trait Service: Send + Sync {
    /// Connects one more client, as another process would.
    ///
    /// # Cancel safety
    /// A suite does not drop this future.
    async fn connect(&self) -> Result<Arc<dyn Store>>;
}

/// Calls `$each!` with every suite: those that run for each [`LockKind`], then those that run once.
/// The second list of each need threads.
///
/// These and the kind `blocking` cannot run in the virtual time of one thread: the world belongs to
/// that thread, and tokio's paused clock stands still while a thread of `spawn_blocking` runs.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_suites {
    ($each:ident $(, $argument:tt)*) => {
        $crate::$each! {
            [$($argument)*]
            [
                holders_exclude_each_other released_guard_is_invalid tokens_increase
                wait_deadline_is_kept hostile_names_are_distinct
                grants_are_fifo queue_is_shown_in_order
                hold_broken_by_own_client_is_lost broken_hold_is_reported_lost
                fixed_lease_expires hold_is_renewed_beyond_the_lease
                max_hold_ends_the_hold unrenewed_claim_expires
            ]
            [dropped_guard_is_released]
            [
                broken_writer_does_not_hold_again cancelled_downgrade_leaves_no_entry
                cancelled_acquire_leaves_no_entry disconnected_hold_is_lost_in_time
                leave_is_retried_beyond_the_lease
                lost_reply_leaves_no_entry
                several_locks_are_granted_or_none loss_of_one_lock_is_loss_of_the_set
                observer_receives_every_change leader_is_elected_and_observed
                nested_acquire_sends_no_request owners_exclude_each_other
                owner_is_one_in_all_clients_of_a_store
                mutex_excludes_readers_and_writers large_claims_are_not_overtaken
                downgrade_lets_readers_in
                mixed_kinds_are_refused ended_leases_do_not_keep_the_kind readers_share semaphore_slots_are_counted
                numbers_of_slots_differ lock_of_another_program_is_no_stale_number
                number_of_the_next_holder_is_not_stale
                reader_with_a_short_lease_does_not_shorten_anothers
                writers_are_not_starved
                repeated_enter_is_idempotent repeated_leave_is_idempotent names_are_listed
                claims_ahead_are_counted_after_a_hand_over
                refused_claim_leaves_no_entry
                cohort_passes_hold_without_request cohort_passes_no_lost_hold
                cohort_tokens_rise_across_processes grant_reserves_tokens
                cohort_holds_have_limits_of_their_own
                cohort_overtakes_remote_waiter_at_most_max_times cohort_keeps_wait_limits
                cancelled_acquire_of_cohort_leaves_nothing
                failed_acquire_of_cohort_fails_no_later_one
                jobs_that_are_completed_are_done job_without_completion_runs_again
                waiter_finds_the_job_done only_a_holder_records_a_completion
                completion_is_recorded_once completion_survives_lost_replies records_are_listed
                lock_is_free_after_a_refused_completion
                own_break_ends_the_hold_before_its_request
                share_can_only_shrink only_stores_with_tokens_give_fencing_tokens
            ]
            [
                blocking_leader_is_elected_and_observed blocking_acquires_share_a_cohort
                nested_acquire_never_waits downgrade_is_not_reported_as_loss
                opposing_orders_do_not_deadlock
            ]
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! name_suites {
    ([] [$($by_kind:ident)*] [$($by_kind_on_threads:ident)*]
        [$($once:ident)*] [$($once_on_threads:ident)*]) => {
        /// The names of all suites that run for each [`LockKind`].
        pub const SUITES_BY_KIND: &[&str] =
            &[$(stringify!($by_kind),)* $(stringify!($by_kind_on_threads)),*];
        /// The names of all suites that run once.
        pub const SUITES_RUN_ONCE: &[&str] =
            &[$(stringify!($once),)* $(stringify!($once_on_threads)),*];
    };
}

conformance_suites!(name_suites);

#[doc(hidden)]
#[macro_export]
macro_rules! test_suites {
    ([$service:tt $kinds:tt] [$($by_kind:ident)*] [$($by_kind_on_threads:ident)*]
        [$($once:ident)*] [$($once_on_threads:ident)*]) => {
        $crate::test_suites! {
            [$service (flavor = "multi_thread", worker_threads = 2) $kinds]
            [$($by_kind)* $($by_kind_on_threads)*] [$($once)* $($once_on_threads)*]
        }
    };
    ([$service:tt] [$($by_kind:ident)*] [$($by_kind_on_threads:ident)*]
        [$($once:ident)*] [$($once_on_threads:ident)*]) => {
        $crate::test_suites! {
            [$service (flavor = "current_thread") [mutex = Mutex, slot = Slot, writer = Writer]]
            [$($by_kind)*] [$($once)*]
        }
    };
    ([$service:tt $runtime:tt $kinds:tt] [$($by_kind:ident)*] [$($once:ident)*]) => {
        $(mod $by_kind {
            #[allow(unused_imports)]
            use super::*;
            $crate::test_kinds!($by_kind $service $runtime $kinds);
        })*
        $(#[tokio::test $runtime]
        async fn $once() { $crate::$once(&$service).await })*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! test_kinds {
    ($suite:ident $service:tt $runtime:tt [$($test:ident = $kind:ident),*]) => {
        $(#[tokio::test $runtime]
        async fn $test() { $crate::$suite(&$service, $crate::LockKind::$kind).await })*
    };
}

/// Makes one test per suite against a [`Service`]. The expression is evaluated once per test.
///
/// ```no_run
/// # use leasehold::{Result, store::Store, stores::Memory};
/// # use leasehold_conformance::Service;
/// # struct MyService(Memory);
/// # #[async_trait::async_trait] impl Service for MyService {
/// #     async fn connect(&self) -> Result<std::sync::Arc<dyn Store>> {
/// #         Ok(std::sync::Arc::new(self.0.clone()))
/// #     }
/// # }
/// leasehold_conformance::conformance_tests!(MyService(Memory::new()));
/// ```
///
/// `in virtual time` before the expression runs the suites on one thread each, for a service that
/// pauses the clock of the thread's runtime. The suites that need threads are left out. In real time
/// such a service needs fewer kinds: `of mutex and blocking` runs those two.
#[macro_export]
macro_rules! conformance_tests {
    (in virtual time, $service:expr) => {
        $crate::conformance_suites!(test_suites, { $service });
    };
    (of mutex and blocking, $service:expr) => {
        $crate::conformance_suites!(
            test_suites,
            { $service },
            [mutex = Mutex, blocking = Blocking]
        );
    };
    ($service:expr) => {
        $crate::conformance_suites!(
            test_suites,
            { $service },
            [
                mutex = Mutex,
                slot = Slot,
                writer = Writer,
                blocking = Blocking
            ]
        );
    };
}
