//! How a claim enters, and what becomes of it until it holds.

use std::sync::Arc;
use std::time::Duration;

use super::Redisson;
use super::class::Class;
use super::inspect::InspectReply;
use super::local_claim::RedissonClaim;
use super::requests::LockReply;
use crate::client::reply_timeout;
use leasehold_core::internal::BootInstant;
use leasehold_core::store::{Entered, OnContention, Share, Standing, replies};
use leasehold_core::{Error, Result};

impl Redisson {
    /// Returns the standing of a claim that an earlier request has entered.
    pub(super) async fn find_entered(
        &self,
        local: &Arc<RedissonClaim>,
        share: Share,
        on_contention: OnContention,
    ) -> Result<Option<Standing>> {
        match local.standing() {
            Standing::Held { .. } if share != local.share() => {
                self.shrink(local, share).await.map(Some)
            }
            Standing::Held { .. } if self.still_holds(local).await? => Ok(Some(local.standing())),
            Standing::Held { .. } => Ok(Some(self.claims.gone(local))),
            Standing::Queued { .. } if on_contention == OnContention::Queue => {
                local.set_share(share);
                local.keep_until(self.kept_from_now(local));
                Ok(Some(local.standing()))
            }
            _ => Ok(None),
        }
    }

    /// Tries to acquire the lock for a claim, or lets it wait behind other claims of this client.
    pub(super) async fn enter_first(
        &self,
        local: &Arc<RedissonClaim>,
        share: Share,
        on_contention: OnContention,
    ) -> Result<Entered> {
        let lease = self.store_lease(&local.claim);
        let until = self.kept_from_now(local);
        let waits = on_contention == OnContention::Queue;
        local.set_share(share);
        if waits {
            let name = &local.claim.name;
            // A request without a reply may have been granted. Only another one shows that.
            if self.claims.has_waiters(name) && !local.has_unanswered() {
                return Ok(Entered::new(self.claims.wait(local, until), lease));
            }
            self.claims.leave_head_start(name).await;
        }

        let mut refused = None;
        let standing = match self.lock(local).await? {
            LockReply::Granted(token) => Standing::Held { token },
            LockReply::Held(_) if waits => self.claims.wait(local, until),
            LockReply::Held(held) => {
                let reply = InspectReply::of_holders(held.holders, share.capacity());
                refused = Some(replies::refused(reply.lock_state(&local.claim.name), None));
                self.claims.gone(local)
            }
            LockReply::Gone => self.claims.gone(local),
        };
        Ok(Entered::new(standing, lease).with_refused(refused))
    }

    /// Returns until when this client keeps a claim that waits from now on.
    fn kept_from_now(&self, local: &RedissonClaim) -> BootInstant {
        BootInstant::now().saturating_add(self.store_lease(&local.claim))
    }

    /// Lets a writer become a reader.
    async fn shrink(&self, local: &Arc<RedissonClaim>, share: Share) -> Result<Standing> {
        if self.mapper.class == Class::Semaphore {
            return Err(Error::unsupported("permits are given back all at once"));
        }
        // A mutex and a writer are the same.
        if share != Share::READER {
            return Ok(local.standing());
        }

        match self.downgrade(local).await? {
            LockReply::Granted(token) => {
                local.set_share(share);
                Ok(Standing::Held { token })
            }
            LockReply::Held(_) | LockReply::Gone => Ok(self.claims.gone(local)),
        }
    }

    /// Whether the server still has the hold of a claim. If so, its lease starts again.
    pub(super) async fn still_holds(&self, local: &Arc<RedissonClaim>) -> Result<bool> {
        let renewed = self.renew_held(std::slice::from_ref(local)).await?;
        Ok(renewed == [true])
    }

    /// Renews a claim that waited, and returns an error if the server cannot be reached.
    pub(super) async fn renew_waiting(
        &self,
        local: &Arc<RedissonClaim>,
        sent_at: BootInstant,
    ) -> Result<Option<Duration>> {
        let lease = self.store_lease(&local.claim);
        match local.renew_waiting(sent_at, lease) {
            (Standing::Queued { .. }, None) => {
                self.claims.gone(local);
                Ok(None)
            }
            (Standing::Queued { .. }, remaining) => {
                let timeout = reply_timeout(local.claim.lease);
                self.links.background.session(timeout).await?;
                Ok(remaining)
            }
            // It was granted meanwhile.
            (Standing::Held { .. }, _) => {
                let is_held = self.still_holds(local).await?;
                Ok(is_held.then_some(lease))
            }
            _ => Ok(None),
        }
    }
}
