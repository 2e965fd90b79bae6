//! Panics of the program's own code: layers of `tracing`, recorders of metrics, wakers.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt;

use crate::{Error, Result};

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
