//! A lock you hold on a lease.
//!
//! Mutexes, reader-writer locks, semaphores and reentrant mutexes that work across tasks, threads, processes and
//! machines. The place where locks are kept is chosen by a URL; everything else stays the same.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
//! let locks = leasehold::open("memory:").await?;
//! let guard = locks.mutex("orders/42").acquire().await?;
//! guard.check()?; // still ours?
//! println!("token {}", guard.token());
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! What each store promises is stated in [`Guarantees`] and, with the tests that show it, in GUARANTEES.md.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "leasehold runs on Linux: it needs CLOCK_BOOTTIME, and its file store flock, FIFOs and epoll"
);

mod admission;
pub mod blocking;
mod claim;
mod claimant_info;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod drain;
mod engine;
mod error;
pub mod fence;
mod guarantees;
mod guard;
#[cfg(feature = "file")]
mod local_fs;
mod lock;
mod lock_state;
mod locks;
mod loss_reason;
mod name;
mod open;
mod reentrant;
mod runtime;
mod rwlock;
pub mod store;
pub mod stores;
mod token;

/// The functions that models in other packages run. They are not part of the interface.
#[doc(hidden)]
pub mod modelled {
    pub use crate::engine::{hold_from, safe_duration};
    pub use crate::runtime::clock::BootInstant;
    #[cfg(feature = "redis")]
    pub use crate::stores::redis::claim_state::{
        Absence, AbsenceSeen, ClaimState, EnterReply, Observed, PollDue, Push, Renewed, Sent,
    };
    #[cfg(feature = "redis")]
    pub use crate::stores::redis::{
        layout as redis_layout, scripts as redis_scripts, tracked_claims as tracked_redis_claims,
    };
    #[cfg(feature = "redis")]
    pub use crate::stores::redlock::voting;
}

pub use claim::ClaimId;
pub use claimant_info::ClaimantInfo;
pub use drain::drain;
pub use error::{Error, Result};
pub use guarantees::{CrashDetection, Guarantees};
pub use guard::Guard;
pub use lock::Lock;
pub use lock_state::{Entry, ExternalHolder, LockState, ServerStatus, ServerVote};
pub use locks::Locks;
pub use loss_reason::{LossReason, RenewalStatus};
pub use name::Name;
pub use open::open;
pub use reentrant::{Owner, Reentrant, ReentrantGuard};
pub use rwlock::RwLock;
pub use token::{FencingToken, Token};

pub(crate) use admission::admitted;
pub(crate) use claim::{Claim, Share};
pub(crate) use store::{Entered, OnContention, Standing, Store};

#[cfg(all(doctest, feature = "file"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
#[cfg(all(doctest, feature = "file"))]
#[doc = include_str!("../../../README.zh-CN.md")]
struct ReadmeInChinese;
#[cfg(all(doctest, feature = "file"))]
#[doc = include_str!("../../../docs/guide.md")]
struct Guide;
#[cfg(all(doctest, feature = "file", feature = "conformance"))]
#[doc = include_str!("../../../CONTRIBUTING.md")]
struct Contributing;
