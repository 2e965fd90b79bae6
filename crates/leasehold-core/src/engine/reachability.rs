//! Whether the store replies.

use parking_lot::Mutex;

use super::spans::millis;
use crate::metrics::Meters;
use crate::runtime::clock::BootInstant;
use crate::{Error, Result};

/// Whether the store replies, as its last requests show it. Changes are logged.
#[derive(Debug, Default)]
pub(super) struct Reachability {
    /// When the first request without a reply was sent; `None` while the store replies.
    unreachable_since: Mutex<Option<BootInstant>>,
}

impl Reachability {
    pub(super) fn is_unreachable(&self) -> bool {
        self.unreachable_since.lock().is_some()
    }

    /// Notes the reply to a request, or its failure.
    pub(super) fn note<T>(&self, store: &str, reply: &Result<T>, meters: &Meters) {
        match reply {
            Err(error) if error.is_unavailable() => self.failed(store, error, meters),
            Ok(_) | Err(_) => self.replied(store),
        }
    }

    fn failed(&self, store: &str, error: &Error, meters: &Meters) {
        let mut since = self.unreachable_since.lock();
        if since.is_none() {
            *since = Some(BootInstant::now());
            meters.outage();
            tracing::warn!(store, %error, error.type = error.kind().as_str(), "store unreachable");
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
