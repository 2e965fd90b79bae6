//! The events that the engine logs, with `tracing`.
//!
//! | message | level | fields |
//! |---|---|---|
//! | `granted` | info | store, name, token, claim, `wait_ms` |
//! | `released` | info | store, name, token, claim, `hold_ms` |
//! | `lost` | warn | store, name, token, claim, `hold_ms`, reason |
//! | `store unreachable` | warn | store, error |
//! | `store reachable again` | info | store, `outage_ms` |
//!
//! The names of messages and fields are stable. No field contains a password.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::runtime::clock::BootInstant;
use crate::{Claim, Error, LossReason, Result, Token};

/// What the events of one hold have in common.
#[derive(Debug)]
pub(crate) struct HoldEvents {
    store: Arc<str>,
    token: Token,
    granted_at: BootInstant,
}

impl HoldEvents {
    pub(super) fn new(store: Arc<str>, token: Token) -> Self {
        Self {
            store,
            token,
            granted_at: BootInstant::now(),
        }
    }

    pub(super) fn granted(&self, claim: &Claim, waited: Duration) {
        tracing::info!(
            store = %self.store, name = %claim.name, token = %self.token, claim = %claim.id,
            wait_ms = millis(waited), "granted"
        );
    }

    pub(super) fn released(&self, claim: &Claim, held: Duration) {
        tracing::info!(
            store = %self.store, name = %claim.name, token = %self.token, claim = %claim.id,
            hold_ms = millis(held), "released"
        );
    }

    pub(super) fn lost(&self, claim: &Claim, reason: LossReason) {
        tracing::warn!(
            store = %self.store, name = %claim.name, token = %self.token, claim = %claim.id,
            hold_ms = millis(self.held()), %reason, "lost"
        );
    }

    /// Returns for how long the lock has been held.
    pub(super) fn held(&self) -> Duration {
        BootInstant::now().duration_since(self.granted_at)
    }
}

/// Whether the store replies, as its last requests show it. Changes are logged.
#[derive(Debug, Default)]
pub(super) struct Reachability {
    /// The first request without a reply; `None` while the store replies.
    unreachable_since: Mutex<Option<BootInstant>>,
}

impl Reachability {
    /// Notes the reply to a request, or its failure.
    pub(super) fn note<T>(&self, store: &str, reply: &Result<T>) {
        match reply {
            Err(error) if error.is_unavailable() => self.failed(store, error),
            Ok(_) | Err(_) => self.replied(store),
        }
    }

    fn failed(&self, store: &str, error: &Error) {
        let mut since = self.unreachable_since.lock();
        if since.is_none() {
            *since = Some(BootInstant::now());
            tracing::warn!(store, %error, "store unreachable");
        }
    }

    fn replied(&self, store: &str) {
        let Some(since) = self.unreachable_since.lock().take() else {
            return;
        };
        let outage = BootInstant::now().duration_since(since);
        tracing::info!(store, outage_ms = millis(outage), "store reachable again");
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
