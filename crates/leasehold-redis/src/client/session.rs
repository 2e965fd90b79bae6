//! One connection to a server, from its opening to its break, and how long a reply may take.

mod open;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::{MultiplexedConnection, PubSubSink};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::reply_error;
use leasehold_core::internal::net::{self, Watched};
use leasehold_core::{Error, Result};

pub(crate) use open::{Opening, connector};

/// The parts of requests and replies. No other file names the crate, but `script.rs` and
/// `reply_error.rs`.
pub(crate) use redis::{
    Cmd as Command, FromRedisValue as FromReply, RedisError as RequestError, Value, cmd as command,
};

/// What the checks of a connection found: the id of the server's history, if its scripts can detect
/// a missing connection.
pub(crate) type Handshake = Option<Arc<str>>;

/// Receives the channel and the text of a notification.
pub(crate) type PushHandler = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// The channel of messages about keys that have changed. No client publishes in it.
pub(crate) const INVALIDATION: &str = "__redis__:invalidate";

/// The value for [`reply_timeout`] if a request concerns no lease of this client.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// A connection that is subscribed to one channel. It ends when it breaks or is closed, and is not
/// re-established.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) epoch: u32,
    connection: MultiplexedConnection,
    /// With RESP2, a subscription needs a connection of its own.
    subscription: Option<PubSubSink>,
    channel: String,
    /// Closed with the connection. The value is the first error that shows that the connection leads
    /// to the wrong server.
    life: Watched<Option<Error>>,
    tasks: Mutex<Vec<AbortHandle>>,
    sent: AtomicU64,
    /// Requests with a reply, and requests whose caller no longer waits.
    done: AtomicU64,
    /// Requests with a reply.
    received: AtomicU64,
    /// Whether the user may run scripts only by the commands for reading.
    pub(super) only_reads: AtomicBool,
}

/// Counts a request as done when its future returns or is dropped.
struct RequestsInFlight<'a>(&'a Session);

impl Drop for RequestsInFlight<'_> {
    fn drop(&mut self) {
        self.0.done.fetch_add(1, Ordering::Relaxed);
    }
}

impl Session {
    /// Returns whether a request is in flight, and the number of replies.
    pub(crate) fn progress(&self) -> (bool, u64) {
        let done = self.done.load(Ordering::Relaxed);
        let in_flight = self.sent.load(Ordering::Relaxed) > done;
        (in_flight, self.received.load(Ordering::Relaxed))
    }

    pub(crate) async fn send(&self, request: &Command) -> Result<Value, RequestError> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let _in_flight = RequestsInFlight(self);
        let mut connection = self.connection.clone();
        let reply = self
            .unless_closed(connection.send_packed_command(request))
            .await?;
        self.received.fetch_add(1, Ordering::Relaxed);
        match reply {
            Value::ServerError(error) => Err(self.refused_with(error.into())),
            reply => Ok(reply),
        }
    }

    /// Notes an error that shows that the connection leads to the wrong server.
    #[cold]
    fn refused_with(&self, error: RequestError) -> RequestError {
        if reply_error::is_of_wrong_server(&error) {
            let noted = reply_error::store_error(error.clone());
            self.life.set_if(|known| known.replace(noted).is_none());
        }
        error
    }

    /// Waits for an error that shows that the connection leads to the wrong server.
    pub(crate) async fn wrong_server(&self) -> Error {
        match self.life.wait_for(Option::clone).await {
            Ok(error) => error,
            // The connection was closed for another reason.
            Err(_) => std::future::pending().await,
        }
    }

    /// Sends a request, and returns its reply as the type that the command returns.
    pub(crate) async fn request<T: FromReply>(&self, request: &Command) -> Result<T> {
        let reply = self.send(request).await;
        decode(reply.map_err(reply_error::store_error)?)
    }

    /// Sends a request to a node that is receiving the slot of its keys.
    ///
    /// `ASKING` holds for the next request of the connection only, so both are sent together.
    pub(crate) async fn send_asking(&self, request: &Command) -> Result<Value, RequestError> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let _in_flight = RequestsInFlight(self);
        let mut both = redis::pipe();
        both.add_command(command("ASKING"));
        both.add_command(request.clone());

        let mut connection = self.connection.clone();
        let replies = self
            .unless_closed(connection.send_packed_commands(&both, 1, 1))
            .await?;
        self.received.fetch_add(1, Ordering::Relaxed);
        match replies.into_iter().next() {
            Some(Value::ServerError(error)) => Err(error.into()),
            Some(reply) => Ok(reply),
            None => Err((redis::ErrorKind::UnexpectedReturnType, "no reply").into()),
        }
    }

    /// Checks the subscribed connection and its subscription.
    pub(crate) async fn ping(&self) -> Result<()> {
        if let Some(subscription) = &self.subscription {
            // Any reply proves that the connection works, an error too.
            let mut subscription = subscription.clone();
            let reply: Result<Value, RequestError> = self.unless_closed(subscription.ping()).await;
            return reply.map(drop).map_err(reply_error::store_error);
        }

        // Only the server can reply to this. A proxy might reply to a PING.
        let mut request = command("PUBSUB");
        request.arg("NUMSUB").arg(&self.channel);
        let reply = self.request(&request).await?;
        let subscribers: Vec<(String, u64)> = decode(reply).unwrap_or_default();
        if subscribers.iter().any(|(_, count)| *count > 0) {
            return Ok(());
        }

        self.close();
        Err(Error::unavailable(
            "the connection has lost its subscription",
        ))
    }

    /// Subscribes to one more channel.
    pub(crate) async fn listen(&self, channel: &str) -> Result<()> {
        let subscribing = async {
            match &self.subscription {
                Some(subscription) => subscription.clone().subscribe(channel).await,
                None => self.connection.clone().subscribe(channel).await,
            }
        };
        let reply = self.unless_closed(subscribing).await;
        reply.map_err(reply_error::store_error)
    }

    /// Unsubscribes from a channel.
    pub(crate) async fn unsubscribe(&self, channel: &str) -> Result<()> {
        let unsubscribing = async {
            match &self.subscription {
                Some(subscription) => subscription.clone().unsubscribe(channel).await,
                None => self.connection.clone().unsubscribe(channel).await,
            }
        };
        let reply = self.unless_closed(unsubscribing).await;
        reply.map_err(reply_error::store_error)
    }

    /// Makes the server push a message with the channel [`INVALIDATION`] whenever a key with this
    /// prefix changes.
    ///
    /// # Errors
    /// [`is_unsupported`](Error::is_unsupported) with RESP2, which has no pushes on the connection
    /// that carries requests.
    #[allow(dead_code, reason = "not every store on Redis has observers")]
    pub(crate) async fn track_prefix(&self, prefix: &str) -> Result<()> {
        if self.subscription.is_some() {
            return Err(Error::unsupported("the connection has no RESP3"));
        }

        let mut request = command("CLIENT");
        request.arg(&["TRACKING", "ON", "BCAST", "PREFIX", prefix]);
        self.request(&request).await
    }

    /// Waits for a reply. Fails once the connection is closed.
    ///
    /// The driver fails the requests that it knows. A request that reaches the driver's queue at
    /// the moment of the close stays there without a reply.
    async fn unless_closed<T>(
        &self,
        reply: impl Future<Output = Result<T, RequestError>>,
    ) -> Result<T, RequestError> {
        tokio::select! {
            biased;
            reply = reply => reply,
            () = self.closed_signal() => Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
        }
    }

    /// Closes the connection; every request in flight fails.
    pub(crate) fn close(&self) {
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
        self.life.close();
    }

    /// Waits until the connection is closed.
    pub(crate) async fn closed_signal(&self) {
        self.life.closed().await;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.life.is_closed()
    }
}

impl net::Session for Session {
    type Checked = Handshake;

    const SERVICE: &'static str = "redis";
    const ENDED: &'static str = "the connection broke";
    const ABSENT: &'static str = "the server does not reply";

    fn epoch(&self) -> u32 {
        self.epoch
    }

    fn is_closed(&self) -> bool {
        self.is_closed()
    }

    fn close(&self) {
        self.close();
    }

    /// A server may stay a replica.
    fn outlasts_requests(error: &Error) -> bool {
        reply_error::shows_replica(error)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close();
    }
}

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
pub(crate) fn decode<T: FromReply>(reply: Value) -> Result<T> {
    redis::from_redis_value(reply).map_err(|_| reply_error::protocol_error())
}

/// Parses the bytes of a reply.
#[cfg(test)]
pub(crate) fn parse_reply(bytes: &[u8]) -> Option<Value> {
    redis::parse_redis_value(bytes).ok()
}
