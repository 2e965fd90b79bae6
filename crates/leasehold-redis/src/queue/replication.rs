//! `replicas=`: a grant counts only when replicas have it.

use std::time::Duration;

use super::Redis;
use crate::client::{Session, reply_timeout, with_reply_timeout};
use leasehold_core::store::{Claim, Standing};
use leasehold_core::{Error, Result, Token};

/// How long `WAIT` waits for replicas. It is less than the silence after which a connection counts
/// as broken.
const REPLICATION_MAX: Duration = Duration::from_millis(1500);

impl Redis {
    /// Waits until the configured number of replicas has a grant.
    ///
    /// It does not release the grant if that fails, because the caller may enter the same claim
    /// again: a release that arrives late would end the hold of the later grant.
    pub(super) async fn replicated(&self, claim: &Claim, token: Token) -> Result<()> {
        if self.settings.replicas == 0 {
            return Ok(());
        }

        // Most users set no replicas. The box keeps the future of every request small.
        Box::pin(self.confirm_replicas(claim, token)).await
    }

    async fn confirm_replicas(&self, claim: &Claim, token: Token) -> Result<()> {
        let limit = reply_timeout(claim.lease);
        let server = self.server_of(claim)?;
        let link = server
            .wait_link
            .as_ref()
            .ok_or_else(|| Error::unavailable("the link for replicas is closed"))?;
        let session = link.session(limit).await?;

        // `WAIT` counts only the writes of its own connection.
        let confirming = async {
            let standing = self.refresh_on(&session, &server, claim).await?;
            if standing != (Standing::Held { token }) {
                return Err(lost());
            }
            self.count_replicas(&session, limit).await
        };
        let count = with_reply_timeout(&session, limit, confirming).await?;

        let wanted = self.settings.replicas;
        if count >= wanted {
            return Ok(());
        }
        Err(Error::unavailable(format!(
            "only {count} of {wanted} replicas have the grant, so it does not count"
        ))
        .help("bring the replicas back, or require fewer with replicas="))
    }

    /// Counts the replicas that have the writes of this connection.
    async fn count_replicas(&self, session: &Session, limit: Duration) -> Result<u32> {
        let timeout = (limit / 2).min(REPLICATION_MAX);
        let mut wait = redis::cmd("WAIT");
        wait.arg(self.settings.replicas)
            .arg(timeout.as_millis().to_string());
        session.request(&wait).await
    }
}

/// The grant is gone, or it is another one: after a failover, the new master may have granted the
/// same claim again, with a larger token.
fn lost() -> Error {
    Error::unavailable("the grant was lost before the replicas had received it")
}
