//! How a claim waits for a grant, and how a hold waits for its loss.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::Redisson;
use super::local_claim::RedissonClaim;
use super::requests::LockReply;
use crate::client::{ChannelSubscription, reply_timeout};
use leasehold_core::internal::BootInstant;
use leasehold_core::store::Standing;
use leasehold_core::{Result, Token};

/// The longest time between two attempts of a waiter. Releases are published, and leases end at a
/// known time. This pause bounds the wait if a program deletes the key without a message.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A key whose lease has ended still exists for less than this time.
const EXPIRY_DELAY: Duration = Duration::from_millis(2);
/// How often a claim checks whether it is the first waiter of this client.
const POSITION_CHECK: Duration = Duration::from_secs(1);

impl Redisson {
    /// Waits until a claim is no longer waiting: it is held or gone.
    pub(super) async fn wait_for_grant(&self, local: &Arc<RedissonClaim>) -> Result<Standing> {
        loop {
            let listening = self.listen(local).await?;
            if let Some(standing) = self.wait_with(local, &listening).await? {
                return Ok(standing);
            }
        }
    }

    /// Waits while the subscription lasts. Returns `None` when its connection is closed.
    async fn wait_with(
        &self,
        local: &Arc<RedissonClaim>,
        listening: &ChannelSubscription,
    ) -> Result<Option<Standing>> {
        while listening.is_open() {
            // A release may precede or follow each step, so notifications count from here.
            let mut message = pin!(listening.message.notified());
            message.as_mut().enable();
            let mut changed = pin!(local.changed.notified());
            changed.as_mut().enable();

            if let Some(standing) = self.ended(local) {
                return Ok(Some(standing));
            }
            let pause = if self.claims.is_first(local) {
                self.claims.leave_head_start(&local.claim.name).await;
                match self.lock(local).await? {
                    LockReply::Granted(token) => return Ok(Some(Standing::Held { token })),
                    LockReply::Gone => return Ok(Some(self.claims.gone(local))),
                    LockReply::Held(held) => pause_of(held.left),
                }
            } else {
                POSITION_CHECK
            };

            tokio::select! {
                biased;
                () = message => {}
                () = changed => {}
                () = listening.closed() => {}
                () = sleep(pause.min(kept_for(local))) => {}
            }
        }
        Ok(None)
    }

    /// Waits until a hold has been lost.
    pub(super) async fn wait_for_loss(
        &self,
        local: &Arc<RedissonClaim>,
        token: Token,
    ) -> Result<Standing> {
        loop {
            let listening = self.listen(local).await?;
            while listening.is_open() {
                let mut message = pin!(listening.message.notified());
                message.as_mut().enable();
                let mut changed = pin!(local.changed.notified());
                changed.as_mut().enable();

                if local.standing().token() != Some(token) {
                    return Ok(local.standing());
                }
                if !self.check_hold(local).await? {
                    return Ok(self.claims.gone(local));
                }
                tokio::select! {
                    biased;
                    () = message => {}
                    () = changed => {}
                    () = listening.closed() => {}
                }
            }
        }
    }

    async fn listen(&self, local: &RedissonClaim) -> Result<ChannelSubscription> {
        let timeout = reply_timeout(local.claim.lease);
        let session = self.links.background.session(timeout).await?;
        let channel = &local.details.keys.channel;
        self.channels.listen(&session, channel, timeout).await
    }

    /// Returns the standing of a claim that no longer waits.
    fn ended(&self, local: &RedissonClaim) -> Option<Standing> {
        let standing = local.standing();
        if !matches!(standing, Standing::Queued { .. }) {
            return Some(standing);
        }
        let is_kept = local.kept_until() > BootInstant::now();
        (!is_kept).then(|| self.claims.gone(local))
    }
}

/// Returns for how long this client still keeps a waiting claim.
fn kept_for(local: &RedissonClaim) -> Duration {
    local.kept_until().duration_since(BootInstant::now())
}

fn pause_of(left: Option<Duration>) -> Duration {
    left.map_or(PAUSE_MAX, |left| PAUSE_MAX.min(left + EXPIRY_DELAY))
}
