//! Leaving a queue: a release, a cancelled wait, or a break of another client's claim.

use std::sync::Arc;

use super::layout;
use super::orphans::Orphan;
use super::{Redis, record, scripts};
use crate::runtime::clock::BootInstant;
use crate::stores::redis_client::{id_text, text};
use crate::{Claim, Result};

impl Redis {
    /// Removes a claim from its queue and grants to the next; `false` if it was not there.
    pub(super) async fn leave_queue(&self, claim: &Claim) -> Result<bool> {
        let tracked = self.claims.end(claim.id);
        // If the claim belongs to another client, the slow path notifies that client.
        let whose = if tracked.is_some() { 'H' } else { 'B' };
        let key = record::key_of(&claim.name);
        let id = id_text(claim.id);

        let late_until = tracked.and_then(|tracked| tracked.late_until());
        if let Some(until) = late_until.filter(|until| *until > BootInstant::now()) {
            let orphan = Orphan {
                key: key.clone(),
                id: id.clone(),
            };
            self.orphans.release(orphan, until);
        }

        let request = format!("{whose}{id}");
        let client = Arc::clone(&self.servers.server_of(&key)?.client);
        let arguments = leave_arguments(&request, &client, self.longest_lease());
        let value = self
            .run(&scripts::LEAVE, claim.lease, &key, &arguments)
            .await?;
        let reply = text(value)?;
        if layout::leave_reply::CLAIM.read(&reply) != Some(&id) {
            return Err(self.protocol_error());
        }
        Ok(layout::leave_reply::WAS_THERE.read(&reply) == Some("1"))
    }
}

/// Returns the arguments of the script that leaves.
pub(super) fn leave_arguments<'a>(
    request: &'a str,
    client: &'a str,
    longest_lease: Option<&'a str>,
) -> Vec<&'a str> {
    let mut arguments = vec![request, client];
    arguments.extend(longest_lease);
    arguments
}
