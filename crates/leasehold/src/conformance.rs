//! Suites that every store passes: one function per promise, to be run against a real service.
//!
//! Give [`conformance_tests!`](crate::conformance_tests) a [`Service`] and get one test per suite. The suites on mutual
//! exclusion run four times: on a mutex, a semaphore of one slot, a writer, and through the blocking faces.
//!
//! ```
//! use leasehold::conformance::{excludes, Face, Service};
//! use leasehold::{stores::Memory, Result, Store};
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
//! excludes(&MyService(Memory::new()), Face::Mutex).await;
//! # }
//! ```
//!
//! A suite panics where a promise is broken. Suites ask for nothing a store does not promise.
#![allow(clippy::missing_panics_doc, reason = "panicking is how a suite reports")]

mod exclusion;
mod faults;
mod reentry;
mod sharing;
mod steps;
mod subject;
mod terms;
mod waiting;

use std::sync::Arc;

use async_trait::async_trait;

use crate::{Result, Store};

pub use exclusion::{excludes, released_is_invalid, tokens_rise};
pub use faults::{
    a_broken_writer_stays_out, cancelled_downgrades_leave_nothing, cancelled_leaves_nothing, cut_off_is_lost_in_time,
    leaving_outlasts_the_lease, lost_answers_leave_nothing,
};
pub use reentry::{nested_acquires_cost_nothing, nested_acquires_never_wait, owners_exclude_each_other};
pub use sharing::{
    a_mutex_is_a_writer, big_claims_are_not_overtaken, downgrade_is_not_reported_as_loss, downgrade_lets_readers_in,
    kinds_do_not_mix, readers_share, slots_are_counted, writers_are_not_starved,
};
pub use steps::{
    entering_twice_is_once, leaving_twice_is_once, names_are_listed, refused_leaves_nothing, shares_only_shrink,
};
pub use subject::Face;
pub use terms::{
    broken_by_its_own_client, broken_is_heard, fixed_leases_end, held_beyond_the_lease, long_holds_end,
    silent_claims_end,
};
pub use waiting::{deadlines_are_kept, dropped_is_released, hostile_names_are_apart, served_in_order, shown_in_line};

/// A running service, to be connected to as often as a suite needs clients.
#[async_trait]
pub trait Service: Send + Sync {
    /// A store as one more client, another process say, would have it.
    async fn connect(&self) -> Result<Arc<dyn Store>>;
}

/// Calls `$each!` with every suite: first those that run for each [`Face`], then those that run once.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_suites {
    ($each:ident $(, $argument:expr)?) => {
        $crate::$each! {
            [$($argument)?]
            [
                excludes released_is_invalid tokens_rise
                deadlines_are_kept dropped_is_released hostile_names_are_apart served_in_order shown_in_line
                broken_by_its_own_client broken_is_heard fixed_leases_end held_beyond_the_lease long_holds_end silent_claims_end
            ]
            [
                a_broken_writer_stays_out cancelled_downgrades_leave_nothing
                cancelled_leaves_nothing cut_off_is_lost_in_time leaving_outlasts_the_lease
                lost_answers_leave_nothing
                nested_acquires_cost_nothing nested_acquires_never_wait owners_exclude_each_other
                a_mutex_is_a_writer big_claims_are_not_overtaken
                downgrade_is_not_reported_as_loss downgrade_lets_readers_in
                kinds_do_not_mix readers_share slots_are_counted writers_are_not_starved
                entering_twice_is_once leaving_twice_is_once names_are_listed refused_leaves_nothing
                shares_only_shrink
            ]
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! name_suites {
    ([] [$($faced:ident)*] [$($plain:ident)*]) => {
        /// The names of all suites that run for each [`Face`].
        pub const FACED: &[&str] = &[$(stringify!($faced)),*];
        /// The names of all suites that run once.
        pub const PLAIN: &[&str] = &[$(stringify!($plain)),*];
    };
}

conformance_suites!(name_suites);

#[doc(hidden)]
#[macro_export]
macro_rules! test_suites {
    ([$service:expr] [$($faced:ident)*] [$($plain:ident)*]) => {
        $(mod $faced {
            #[allow(unused_imports)]
            use super::*;
            use $crate::conformance::{Face, $faced as suite};
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn mutex() { suite(&$service, Face::Mutex).await }
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn slot() { suite(&$service, Face::Slot).await }
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn writer() { suite(&$service, Face::Writer).await }
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn blocking() { suite(&$service, Face::Blocking).await }
        })*
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $plain() { $crate::conformance::$plain(&$service).await })*
    };
}

/// One test per suite against the [`Service`] that the expression gives; it is evaluated once per test.
///
/// ```no_run
/// # use leasehold::{conformance::Service, stores::Memory, Result, Store};
/// # struct MyService(Memory);
/// # #[async_trait::async_trait] impl Service for MyService {
/// #     async fn connect(&self) -> Result<std::sync::Arc<dyn Store>> { Ok(std::sync::Arc::new(self.0.clone())) }
/// # }
/// leasehold::conformance_tests!(MyService(Memory::new()));
/// ```
#[macro_export]
macro_rules! conformance_tests {
    ($service:expr) => {
        $crate::conformance_suites!(test_suites, $service);
    };
}
