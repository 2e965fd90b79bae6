//! What every layer runs on: the background thread, detached futures, the clock and the backoff.
//!
//! A Redis store has a link that the caller's runtime drives and a link that the background drives.
//! The caller's runtime reaches the store through a thread local, because the methods of the
//! `Store` trait have no parameter for it:
//!
//! 1. Every public async method is polled inside [`on_background`](background::on_background),
//!    which records the runtime around the outermost poll.
//! 2. A blocking call records that no runtime drives the caller's connections, as its thread is
//!    blocked.
//! 3. The store reads [`caller_runtime`](background::caller_runtime) when it sends a request, and
//!    uses the caller link only if that runtime drives it.

pub(crate) mod background;
pub(crate) mod backlog;
pub(crate) mod backoff;
#[allow(unreachable_pub, reason = "crate::simulation exports its time")]
pub(crate) mod clock;
pub(crate) mod departures;
pub(crate) mod fork;
pub(crate) mod process_file;
#[cfg(feature = "unstable-simulation")]
#[allow(unreachable_pub, reason = "crate::simulation exports it")]
pub mod simulation;
#[cfg(not(feature = "unstable-simulation"))]
#[path = "runtime/no_simulation.rs"]
pub(crate) mod simulation;
