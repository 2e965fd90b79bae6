//! Panics of the program's own code, and what may be used after one that its user has caught.
//!
//! No code of the user runs while leasehold changes its state, so that a panic of the user finds it
//! whole. The compiler cannot know that of a store, a recorder of metrics or a mutex of
//! `parking_lot`.

use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};

use futures_util::FutureExt;

use crate::{Error, Guard, Locks, Observer, Owner, ReentrantGuard, Result, Watch};

/// Logs or counts, which must not end what leasehold is doing. A panic of the program's layer of
/// `tracing` or its recorder of metrics is reported by the panic hook, and gives `None`.
pub(crate) fn contained<T>(telemetry: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(telemetry)).ok()
}

/// Waits for a reply. A panic, such as one of the program's layer of `tracing`, counts as none.
pub async fn without_panic<T>(reply: impl Future<Output = Result<T>>) -> Result<T> {
    let reply = AssertUnwindSafe(reply).catch_unwind().await;
    reply.unwrap_or_else(|_| Err(Error::unavailable("the request has panicked")))
}

impl UnwindSafe for Error {}
impl UnwindSafe for Guard {}
impl UnwindSafe for Locks {}
impl UnwindSafe for Observer {}
impl UnwindSafe for Owner {}
impl UnwindSafe for ReentrantGuard {}
impl UnwindSafe for Watch {}

impl RefUnwindSafe for Error {}
impl RefUnwindSafe for Guard {}
impl RefUnwindSafe for Locks {}
impl RefUnwindSafe for Observer {}
impl RefUnwindSafe for Owner {}
impl RefUnwindSafe for ReentrantGuard {}
impl RefUnwindSafe for Watch {}
