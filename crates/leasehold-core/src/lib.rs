//! The part of [leasehold](https://docs.rs/leasehold) that all stores share: only the crate
//! `leasehold` follows semantic versioning, and a program names nothing of this one.
//!
//! It has the locks, the engine behind them, the contract of a store, and the stores that need no
//! service: in memory and in a folder.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
compile_error!("leasehold needs a clock that also runs during a suspend: Linux or macOS");

#[allow(
    missing_docs,
    clippy::must_use_candidate,
    reason = "the store crates use it, and no user"
)]
mod absences;
mod admission;
pub mod blocking;
mod check_binds;
mod claim;
mod claimant_info;
mod drain;
mod election;
mod ended_hold;
mod engine;
mod error;
#[cfg_attr(
    not(all(feature = "file", target_os = "linux")),
    allow(dead_code, reason = "the store in memory is not examined")
)]
mod examination;
pub mod fence;
mod guarantees;
mod guard;
mod guard_ext;
#[doc(hidden)]
pub mod internal;
#[cfg(all(feature = "file", target_os = "linux"))]
mod local_fs;
mod lock;
mod lock_state;
mod locks;
mod loss_reason;
mod metric_labels;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(not(feature = "metrics"))]
#[path = "no_metrics.rs"]
mod metrics;
mod multi;
mod name;
#[allow(
    missing_docs,
    clippy::must_use_candidate,
    reason = "the store crates use it, and no user"
)]
mod net;
mod observer;
mod once;
mod record;
mod reentrant;
mod refused;
mod run;
#[allow(
    missing_docs,
    clippy::must_use_candidate,
    reason = "the store crates use it, and no user"
)]
mod runtime;
mod rwlock;
#[cfg(feature = "unstable-simulation")]
#[doc(hidden)]
pub mod simulation;
// It is no part of the promised API: `leasehold` exports it behind a feature.
#[doc(hidden)]
pub mod store;
mod store_kind;
pub mod stores;
mod stray_character;
#[cfg(test)]
mod test_inputs;
mod token;
mod unwind;
mod watch;

pub use check_binds::CheckBinds;
pub use claim::{ClaimId, Share};
pub use claimant_info::ClaimantInfo;
pub use drain::drain;
pub use election::{Election, Leader, LeaderObserver, Leadership};
pub use ended_hold::{EndReason, EndedHold};
pub use error::{Error, ErrorKind, Result};
pub use examination::{Examination, ExaminedServer, Finding, RoundTrip, Severity};
pub use guarantees::{CrashRelease, Guarantees, Need, SemaphoreSupport};
pub use guard::Guard;
pub use guard_ext::{FileGuardExt, RedlockGuardExt};
pub use lock::Lock;
pub use lock_state::{
    ClaimProcess, Entry, ExternalHolder, LockState, Pin, PinnedBy, ServerStatus, ServerVote,
};
pub use locks::Locks;
pub use loss_reason::{LossReason, RenewalStatus};
pub use multi::{MultiGuard, MultiLock, multi_lock};
pub use name::Name;
pub use observer::Observer;
#[doc(hidden)]
pub use once::StartedJob;
pub use once::{Done, NotGranted, Once, OnceGuard};
pub use record::{Completion, Outcome, Record};
pub use reentrant::{Owner, Reentrant, ReentrantGuard};
pub use refused::Refused;
pub use run::RunError;
pub use rwlock::RwLock;
pub use store::{Cleanup, Standing};
pub use token::{FencingToken, Token};
pub use watch::Watch;

pub(crate) use admission::admitted;
pub(crate) use claim::Claim;
pub(crate) use store::{Entered, OnContention, Store};
