//! Timeouts of replies, and the decoding of a text.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use redis::{FromRedisValue, Value};
use tokio::time::{Timeout, timeout};

use super::reply_error;
use super::session::Session;
use crate::{Error, Result};

/// The value for [`reply_timeout`] if a request concerns no lease of this client.
pub(in crate::stores) const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the timeout of a request that concerns a lease.
pub(in crate::stores) fn reply_timeout(lease: Duration) -> Duration {
    (lease / 4).clamp(Duration::from_millis(250), Duration::from_secs(5))
}

/// Waits at most `limit` for a reply. A timeout closes the connection.
pub(in crate::stores) fn with_reply_timeout<F: Future>(
    session: &Session,
    limit: Duration,
    reply: F,
) -> ReplyTimeout<'_, F> {
    ReplyTimeout {
        reply: timeout(limit, reply),
        session,
        limit,
    }
}

pin_project! {
    /// A hand-written future: an async function would reserve the space of its argument twice.
    pub(in crate::stores) struct ReplyTimeout<'a, F> {
        #[pin]
        reply: Timeout<F>,
        session: &'a Session,
        limit: Duration,
    }
}

impl<T, F: Future<Output = Result<T>>> Future for ReplyTimeout<'_, F> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let this = self.project();
        let Ok(reply) = ready!(this.reply.poll(context)) else {
            this.session.close();
            return Poll::Ready(Err(Error::unavailable(format!(
                "the server did not reply within {:?}",
                this.limit
            ))));
        };
        Poll::Ready(reply)
    }
}

/// Returns the reply as the type that the script or command returns.
pub(in crate::stores) fn decode<T: FromRedisValue>(reply: Value) -> Result<T> {
    redis::from_redis_value(reply).map_err(|_| reply_error::protocol_error())
}
