//! Timeouts of replies, and the decoding of a text.

use std::time::Duration;

use redis::{FromRedisValue, Value};
use tokio::time::timeout;

use super::reply_error;
use super::session::Session;
use leasehold_core::{Error, Result};

/// The value for [`reply_timeout`] if a request concerns no lease of this client.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the timeout of a request that concerns a lease.
pub(crate) fn reply_timeout(lease: Duration) -> Duration {
    (lease / 4).clamp(Duration::from_millis(250), Duration::from_secs(5))
}

/// Waits at most `limit` for a reply. A timeout closes the connection.
pub(crate) async fn with_reply_timeout<T>(
    session: &Session,
    limit: Duration,
    reply: impl Future<Output = Result<T>>,
) -> Result<T> {
    let Ok(reply) = timeout(limit, reply).await else {
        session.close();
        return Err(Error::unavailable(format!(
            "the server did not reply within {limit:?}"
        )));
    };
    reply
}

/// Returns the reply as the type that the script or command returns.
pub(crate) fn decode<T: FromRedisValue>(reply: Value) -> Result<T> {
    redis::from_redis_value(reply).map_err(|_| reply_error::protocol_error())
}
