//! How a claim enters, and what becomes of it until it holds.

use std::sync::Arc;
use std::time::Duration;

use super::Redisson;
use super::class::Class;
use super::local_claim::LocalClaim;
use super::requests::LockReply;
use crate::runtime::clock::BootInstant;
use crate::stores::redis_client::reply_timeout;
use crate::{Error, OnContention, Result, Share, Standing};

impl Redisson {
    pub(super) async fn enter_claim(
        &self,
        local: &Arc<LocalClaim>,
        share: Share,
        on_contention: OnContention,
    ) -> Result<Standing> {
        let until = BootInstant::now().saturating_add(self.store_lease(&local.claim));
        let waits = on_contention == OnContention::Queue;
        match local.standing() {
            Standing::Held { .. } if share != local.share() => {
                return self.shrink(local, share).await;
            }
            Standing::Held { .. } => {
                let is_held = self.still_holds(local).await?;
                return Ok(if is_held {
                    local.standing()
                } else {
                    self.gone(local)
                });
            }
            Standing::Queued { .. } if waits => {
                local.set_share(share);
                local.keep_until(until);
                return Ok(local.standing());
            }
            Standing::Gone if waits => {
                // A request without a reply may have been granted. Only another one shows that.
                local.set_share(share);
                if self.claims.has_waiters(&local.keys.lock) && !local.has_unanswered() {
                    self.claims.wait(local, until);
                    return Ok(local.standing());
                }
                self.leave_head_start(local).await;
            }
            Standing::Queued { .. } | Standing::Gone => {}
        }

        local.set_share(share);
        match self.lock(local).await? {
            LockReply::Granted(token) => Ok(Standing::Held { token }),
            LockReply::Held(_) if waits => {
                self.claims.wait(local, until);
                Ok(local.standing())
            }
            LockReply::Held(_) | LockReply::Gone => Ok(self.gone(local)),
        }
    }

    /// Lets a writer become a reader.
    async fn shrink(&self, local: &Arc<LocalClaim>, share: Share) -> Result<Standing> {
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
            LockReply::Held(_) | LockReply::Gone => Ok(self.gone(local)),
        }
    }

    /// Whether the server still has the hold of a claim. If so, its lease starts again.
    pub(super) async fn still_holds(&self, local: &Arc<LocalClaim>) -> Result<bool> {
        let renewed = self.renew_held(std::slice::from_ref(local)).await?;
        Ok(renewed == [true])
    }

    /// Renews a claim that waited, and returns an error if the server cannot be reached.
    pub(super) async fn renew_waiting(
        &self,
        local: &Arc<LocalClaim>,
        sent_at: BootInstant,
    ) -> Result<Option<Duration>> {
        let lease = self.store_lease(&local.claim);
        match local.renew_waiting(sent_at, lease) {
            (Standing::Queued { .. }, None) => {
                self.claims.close(local.claim.id);
                Ok(None)
            }
            (Standing::Queued { .. }, remaining) => {
                let timeout = reply_timeout(local.claim.lease);
                self.background_link.session(timeout).await?;
                Ok(remaining)
            }
            // It was granted meanwhile.
            (Standing::Held { .. }, _) => {
                let is_held = self.still_holds(local).await?;
                Ok(is_held.then_some(lease))
            }
            (Standing::Gone, _) => Ok(None),
        }
    }
}
