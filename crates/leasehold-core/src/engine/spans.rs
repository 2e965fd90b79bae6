//! The spans of the engine, with `tracing`.
//!
//! | span | inside | fields |
//! |---|---|---|
//! | `acquire` | the caller's span | store, name, position, `wait_ms`, token |
//! | `hold` | the caller's span | store, name, token, claim, `hold_ms` |
//! | `release` | `hold` | store, name, token, claim |
//!
//! Each span also has the fields `otel.kind`, `otel.status_code` and `error.type`, whose names and
//! values OpenTelemetry defines. OpenTelemetry has no names for locks.

use std::time::Duration;

use tracing::Span;
use tracing::field::Empty;

use crate::{Claim, Name, Token};

pub(super) fn acquire(store: &str, name: &Name) -> Span {
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

pub(super) fn hold(store: &str, claim: &Claim, token: Token) -> Span {
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

pub(super) fn release(store: &str, claim: &Claim, token: Token) -> Span {
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

/// Marks a span as failed. OpenTelemetry defines the names and the value `ERROR`.
pub(super) fn failed(span: &Span, error_type: &'static str) {
    span.record("otel.status_code", "ERROR");
    span.record("error.type", error_type);
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
