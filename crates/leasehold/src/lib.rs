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
//! What each store promises is stated in [`Promises`] and, with the tests that show it, in GUARANTEES.md.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(target_os = "linux"))]
compile_error!("leasehold runs on Linux: it needs CLOCK_BOOTTIME, and its file store flock, FIFOs and epoll");

mod admission;
mod background;
pub mod blocking;
mod claim;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod drain;
mod engine;
mod error;
pub mod fence;
mod guard;
mod line;
mod lock;
mod locks;
mod loss;
mod name;
mod note;
mod open;
mod promises;
mod reentrant;
mod rwlock;
mod store;
pub mod stores;
mod token;

/// What models outside of this package try out. No part of the interface.
#[doc(hidden)]
pub mod modelled {
    pub use crate::clock::Moment;
    pub use crate::engine::{hold_from, trusted};
    #[cfg(feature = "redis")]
    pub use crate::stores::belief::{Absence, AbsenceSeen, Answer, Known, LookDue, Renewed, Sighting, Told};
}

pub use admission::admitted;
pub use claim::{Claim, ClaimId, Share};
pub use drain::drain;
pub use error::{Error, Result};
pub use guard::Guard;
pub use line::{Entry, Line, Stranger, View, Vote};
pub use lock::Lock;
pub use locks::Locks;
pub use loss::{Loss, Renewal};
pub use name::Name;
pub use note::Note;
pub use open::{open, over};
pub use promises::{Crash, Promises};
pub use reentrant::{Owner, Reentrant, ReentrantGuard};
pub use rwlock::RwLock;
pub use store::{Entered, Patience, Standing, Store};
pub use token::{FencingToken, Token};

#[cfg(all(doctest, feature = "file"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
#[cfg(all(doctest, feature = "file", feature = "conformance"))]
#[doc = include_str!("../../../CONTRIBUTING.md")]
struct Contributing;
