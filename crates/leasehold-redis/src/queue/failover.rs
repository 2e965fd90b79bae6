//! `after-failover=wait`: a master grants nothing until the holds that it may not know have ended.

use std::sync::Arc;

use super::record::millis;
use super::{Redis, scripts};
use crate::client::{Session, Settings};
use leasehold_core::store::Claim;
use leasehold_core::{Error, Result};

/// The largest `longest-lease=` of all clients.
const LONGEST_KEY: &str = "leasehold:{history}:longest";

impl Redis {
    /// Returns the longest lease of the URL in milliseconds, if masters wait for it.
    pub(super) fn longest_lease(&self) -> Option<&str> {
        self.longest_lease.as_deref()
    }

    /// Refuses a claim that would outlast the wait.
    pub(super) fn check_lease(&self, claim: &Claim) -> Result<()> {
        match self.settings.failover_wait {
            Some(longest) if claim.lease > longest => Err(too_long(longest)),
            _ => Ok(()),
        }
    }
}

/// Returns the longest lease of the URL as the scripts take it.
pub(super) fn longest_lease(settings: Settings) -> Option<Arc<str>> {
    let longest = settings.failover_wait?;
    Some(millis(longest).to_string().into())
}

/// Notes the longest lease in the store, where all clients find the largest one.
///
/// A full server refuses a new value, and still renews holds. So the connection is used, and the
/// next handshake notes the value.
pub(super) async fn note_longest_lease(session: &Session, settings: Settings) -> Result<()> {
    let Some(longest) = longest_lease(settings) else {
        return Ok(());
    };
    let noted = scripts::LONGEST_LEASE
        .send_text(session, &[LONGEST_KEY], &[&longest])
        .await;
    match noted {
        Err(error) if error.is_unavailable() => {
            tracing::debug!(%error, "the longest lease is not noted in the store yet");
            Ok(())
        }
        noted => noted.map(drop),
    }
}

#[cold]
fn too_long(longest: std::time::Duration) -> Error {
    Error::invalid(format!("the longest lease on this store is {longest:?}"))
        .help("use a shorter lease, or set a larger longest-lease= in the URL")
}
