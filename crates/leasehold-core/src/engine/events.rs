//! The events and spans that the engine logs, with `tracing`, and the metrics of acquires and
//! holds.
//!
//! | message | level | fields |
//! |---|---|---|
//! | `granted` | info | store, name, token, claim, `wait_ms` |
//! | `released` | info | store, name, token, claim, `hold_ms` |
//! | `lost` | warn | store, name, token, claim, `hold_ms`, reason, `error.type` |
//! | `hand-over missed` | warn | store, name, claim |
//! | `store unreachable` | warn | store, error, `error.type` |
//! | `store reachable again` | info | store, `outage_ms` |
//!
//! | span | inside | fields |
//! |---|---|---|
//! | `acquire` | the caller's span | store, name, position, `wait_ms`, token |
//! | `hold` | the caller's span | store, name, token, claim, `hold_ms` |
//! | `release` | `hold` | store, name, token, claim |
//!
//! Each span also has the fields `otel.kind`, `otel.status_code` and `error.type`, whose names and
//! values OpenTelemetry defines. OpenTelemetry has no names for locks.
//!
//! The names of messages and fields are stable; docs/operate.md describes them for operators. No
//! field contains a password.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::Span;
use tracing::field::Empty;

use super::StoreCalls;
use crate::metrics::{LockMeters, WaitingClaim};
use crate::runtime::clock::BootInstant;
use crate::{Claim, Error, LossReason, Name, Token};

/// The span and the metrics of one acquire.
#[derive(Debug)]
pub(super) struct AcquireEvents {
    store: Arc<str>,
    begun: Instant,
    span: Span,
    meters: Arc<LockMeters>,
    has_ended: bool,
}

impl AcquireEvents {
    pub(super) fn begin(calls: &StoreCalls, name: &Name) -> Self {
        Self {
            store: calls.shared_url(),
            begun: Instant::now(),
            span: acquire_span(calls.url(), name),
            meters: Arc::clone(calls.meters().lock(name)),
            has_ended: false,
        }
    }

    /// The events of a claim that is acquired for several acquires, which record their own.
    pub(super) fn unrecorded(calls: &StoreCalls, name: &Name) -> Self {
        Self {
            store: calls.shared_url(),
            begun: Instant::now(),
            span: Span::none(),
            meters: Arc::clone(calls.meters().lock(name)),
            has_ended: true,
        }
    }

    pub(super) fn span(&self) -> Span {
        self.span.clone()
    }

    /// Records that the claim waits behind `ahead` others, until the returned value is dropped.
    pub(super) fn queued(&self, ahead: u32) -> WaitingClaim {
        self.span.record("position", ahead.saturating_add(1));
        self.meters.waits(ahead)
    }

    /// Records a grant whose validity had ended before the waiter could use it.
    #[cold]
    pub(super) fn hand_over_missed(&self, claim: &Claim) {
        self.meters.hand_over_missed();
        tracing::warn!(
            store = %self.store, name = %claim.name, claim = %claim.id, "hand-over missed"
        );
    }

    pub(super) fn granted(mut self, token: Token) -> GrantedAcquire {
        let waited = self.end();
        self.span.record("token", tracing::field::display(token));
        self.meters.granted(waited);
        GrantedAcquire {
            waited,
            span: self.span(),
        }
    }

    pub(super) fn refused(mut self) {
        self.end();
        self.meters.not_granted("refused");
    }

    pub(super) fn failed(mut self, error: &Error) {
        self.end();
        failed(&self.span, error.kind().as_str());
        self.meters.not_granted(error.kind().as_str());
    }

    /// Returns how long the acquire has taken.
    fn end(&mut self) -> Duration {
        self.has_ended = true;
        let waited = self.begun.elapsed();
        self.span.record("wait_ms", millis(waited));
        waited
    }
}

/// An acquire that ended with a grant.
pub(super) struct GrantedAcquire {
    waited: Duration,
    span: Span,
}

/// The caller may drop the acquire.
impl Drop for AcquireEvents {
    fn drop(&mut self) {
        if !self.has_ended {
            self.meters.not_granted("cancelled");
        }
    }
}

/// What the events of one hold have in common.
#[derive(Debug)]
pub(crate) struct HoldEvents {
    store: Arc<str>,
    token: Token,
    granted_at: BootInstant,
    meters: Arc<LockMeters>,
    /// The span of the hold, until the hold ends.
    span: Mutex<Span>,
}

impl HoldEvents {
    pub(super) fn begin(calls: &StoreCalls, claim: &Claim, token: Token) -> Self {
        let meters = calls.meters().lock(&claim.name);
        contained(|| meters.hold_begins());
        Self {
            store: calls.shared_url(),
            token,
            granted_at: BootInstant::now(),
            meters: Arc::clone(meters),
            span: Mutex::new(Span::none()),
        }
    }

    /// Logs the grant inside the span of its acquire. The span of the hold is next to it.
    pub(super) fn granted(&self, claim: &Claim, acquire: &GrantedAcquire) {
        *self.span.lock() = hold_span(&self.store, claim, self.token);
        acquire.span.in_scope(|| {
            tracing::info!(
                store = %self.store, name = %claim.name, token = %self.token, claim = %claim.id,
                wait_ms = millis(acquire.waited), "granted"
            );
        });
    }

    /// Records the end of the hold. A loss closes the span of the hold, a release follows inside
    /// it.
    pub(super) fn ended(&self, claim: &Claim, loss: Option<LossReason>) {
        let held = self.held();
        self.meters.hold_ends(held);
        self.span.lock().record("hold_ms", millis(held));

        if let Some(reason) = loss {
            self.lost(claim, reason, held, &self.take_span());
        }
    }

    /// Records a loss, which a release may be the first to notice.
    pub(super) fn lost(&self, claim: &Claim, reason: LossReason, held: Duration, span: &Span) {
        self.meters.lost(reason);
        failed(span, reason.as_str());
        span.in_scope(|| self.log_loss(claim, reason, held));
    }

    /// Returns the span in which the claim leaves, inside the span of the hold.
    pub(super) fn release_span(&self, claim: &Claim, hold: &Span) -> Span {
        hold.in_scope(|| release_span(&self.store, claim, self.token))
    }

    pub(super) fn released(&self, claim: &Claim, held: Duration) {
        tracing::info!(
            store = %self.store, name = %claim.name, token = %self.token, claim = %claim.id,
            hold_ms = millis(held), "released"
        );
    }

    /// Returns for how long the lock has been held.
    pub(super) fn held(&self) -> Duration {
        BootInstant::now().duration_since(self.granted_at)
    }

    /// Returns the span of the hold, which ends when it is dropped.
    pub(super) fn take_span(&self) -> Span {
        std::mem::replace(&mut *self.span.lock(), Span::none())
    }

    fn log_loss(&self, claim: &Claim, reason: LossReason, held: Duration) {
        tracing::warn!(
            store = %self.store, name = %claim.name, token = %self.token, claim = %claim.id,
            hold_ms = millis(held), %reason, error.type = reason.as_str(), "lost"
        );
    }
}

fn acquire_span(store: &str, name: &Name) -> Span {
    tracing::info_span!(
        "acquire",
        otel.kind = "client",
        otel.status_code = Empty,
        error.type = Empty,
        store,
        name = %name,
        position = Empty,
        wait_ms = Empty,
        token = Empty,
    )
}

fn hold_span(store: &str, claim: &Claim, token: Token) -> Span {
    tracing::info_span!(
        "hold",
        otel.kind = "internal",
        otel.status_code = Empty,
        error.type = Empty,
        store,
        name = %claim.name,
        token = %token,
        claim = %claim.id,
        hold_ms = Empty,
    )
}

fn release_span(store: &str, claim: &Claim, token: Token) -> Span {
    tracing::info_span!(
        "release",
        otel.kind = "client",
        otel.status_code = Empty,
        error.type = Empty,
        store,
        name = %claim.name,
        token = %token,
        claim = %claim.id,
    )
}

/// Logs or counts, which must not end what leasehold is doing. A panic of the program's layer of
/// `tracing` or its recorder of metrics is reported by the panic hook, and gives `None`.
pub(super) fn contained<T>(telemetry: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(telemetry)).ok()
}

/// Polls a future inside a span. A layer that panics when the span is entered or left does not end
/// the future.
pub(super) async fn inside<T>(span: Span, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    poll_fn(|context| {
        let entered = contained(|| span.enter());
        let polled = future.as_mut().poll(context);
        contained(|| drop(entered));
        polled
    })
    .await
}

/// Marks a span as failed. OpenTelemetry defines the names and the value `ERROR`.
pub(super) fn failed(span: &Span, error_type: &'static str) {
    span.record("otel.status_code", "ERROR");
    span.record("error.type", error_type);
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
