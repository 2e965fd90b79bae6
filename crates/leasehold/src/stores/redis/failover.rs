//! `after-failover=wait`: a master grants nothing until the holds that it may not know have ended.

use std::sync::Arc;

use super::Redis;
use super::record::millis;
use crate::stores::redis_client::Settings;
use crate::{Claim, Error, Result};

impl Redis {
    /// Returns the longest lease of all clients in milliseconds, if masters wait for it.
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

/// Returns the longest lease of all clients as the scripts take it.
pub(super) fn longest_lease(settings: Settings) -> Option<Arc<str>> {
    let longest = settings.failover_wait?;
    Some(millis(longest).to_string().into())
}

#[cold]
fn too_long(longest: std::time::Duration) -> Error {
    Error::invalid(format!("the longest lease on this store is {longest:?}"))
        .help("use a shorter lease, or set a larger longest-lease= in the URLs of all clients")
}
