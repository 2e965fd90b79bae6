//! One connection to a server, from its opening to its break, and how long a reply may take.

mod calls;
mod open;
mod wire;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::AsyncRead;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::reply_error;
use super::request::{Request, RequestError, command};
use super::value::{FromReply, Value};
use leasehold_core::internal::background;
use leasehold_core::internal::net::{self, CloseOnDrop, Watched};
use leasehold_core::{Error, Result};
use wire::{Driver, Wire};

pub(super) use open::lacks_resp3;
pub(crate) use open::{Opening, connector};

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
    wire: Arc<Wire>,
    /// With RESP2, a subscription needs a connection of its own.
    subscription: Option<Arc<Wire>>,
    channel: String,
    /// Closed with the connection. The value is the first error that shows that the connection
    /// leads to the wrong server.
    life: Watched<Option<Error>>,
    tasks: Mutex<Vec<AbortHandle>>,
    /// Whether the user may run scripts only by the commands for reading.
    pub(super) only_reads: AtomicBool,
}

impl Session {
    /// Spawns the task of a connection. The session is closed when the task ends or is dropped.
    fn drive(&self, driver: Driver<impl AsyncRead + Send + Unpin + 'static>) {
        let close_on_drop = CloseOnDrop(self.life.clone());
        let here = Handle::try_current().ok();
        let driving = background::spawn_on(here.as_ref(), async move {
            driver.drive().await;
            drop(close_on_drop);
        });
        self.tasks.lock().push(driving);
    }

    /// Returns whether a request is in flight, and the number of replies.
    pub(crate) fn progress(&self) -> (bool, u64) {
        self.wire.progress()
    }

    /// Sends a request, and returns its reply.
    ///
    /// # Cancel safety
    /// Once the future was polled, the server may execute the request.
    pub(crate) async fn send(&self, request: &impl Request) -> Result<Value, RequestError> {
        self.checked(self.wire.send(request).await)
    }

    /// Sends a request to a node that is receiving the slot of its keys.
    pub(crate) async fn send_asking(&self, request: &impl Request) -> Result<Value, RequestError> {
        self.checked(self.wire.send_asking(request).await)
    }

    fn checked(&self, reply: Result<Value, RequestError>) -> Result<Value, RequestError> {
        match reply? {
            Value::Error(error) => Err(self.refused_with(error.into())),
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
    pub(crate) async fn request<T: FromReply>(&self, request: &impl Request) -> Result<T> {
        let reply = self.send(request).await;
        decode(reply.map_err(reply_error::store_error)?)
    }

    /// Checks the subscribed connection and its subscription.
    pub(crate) async fn ping(&self) -> Result<()> {
        if let Some(subscription) = &self.subscription {
            // Any reply proves that the connection works, an error too.
            let reply = subscription.send(&command("PING")).await;
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
        self.change_subscription("SUBSCRIBE", channel).await
    }

    /// Unsubscribes from a channel.
    pub(crate) async fn unsubscribe(&self, channel: &str) -> Result<()> {
        self.change_subscription("UNSUBSCRIBE", channel).await
    }

    async fn change_subscription(&self, word: &str, channel: &str) -> Result<()> {
        let wire = self.subscription.as_ref().unwrap_or(&self.wire);
        let mut request = command(word);
        request.arg(channel);
        match wire
            .subscribe(&request)
            .await
            .map_err(reply_error::store_error)?
        {
            Value::Error(error) => Err(reply_error::store_error(error.into())),
            _ => Ok(()),
        }
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
        for word in ["TRACKING", "ON", "BCAST", "PREFIX", prefix] {
            request.arg(word);
        }
        self.request(&request).await
    }

    /// Closes the connection; every request in flight fails.
    pub(crate) fn close(&self) {
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
        // First, so that a caller whose request fails finds the connection closed.
        self.life.close();
        self.wire.fail(RequestError::closed());
        if let Some(subscription) = &self.subscription {
            subscription.fail(RequestError::closed());
        }
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
    const ABSENT: &'static str = reply_error::NO_REPLY;

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
    T::from_reply(reply).ok_or_else(reply_error::protocol_error)
}
