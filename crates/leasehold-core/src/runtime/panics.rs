//! Panics of the program's own code: layers of `tracing`, recorders of metrics, wakers.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt;
use tracing::Span;

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

/// Polls a future inside a span. A layer that panics when the span is entered or left does not end
/// the future.
pub(crate) async fn inside<T>(span: Span, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    poll_fn(|context| {
        let entered = contained(|| span.enter());
        let polled = future.as_mut().poll(context);
        contained(|| drop(entered));
        polled
    })
    .await
}
