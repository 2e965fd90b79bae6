//! One connection to a server, from its opening to its break.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::StreamExt;
use parking_lot::Mutex;
use redis::aio::{MultiplexedConnection, PubSub, PubSubSink};
use redis::{
    AsyncConnectionConfig, Cmd, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo,
    RedisError, Value,
};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::address::Address;
use super::reply_error;
use super::stream::Stream;
use crate::{Error, Result};

/// Receives the channel and the text of a notification.
pub(in crate::stores) type PushHandler = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// A connection that is subscribed to one channel. It ends when it breaks or is closed, and is not
/// re-established.
#[derive(Debug)]
pub(in crate::stores) struct Session {
    pub(in crate::stores) epoch: u32,
    connection: MultiplexedConnection,
    /// With RESP2, a subscription needs a connection of its own.
    subscription: Option<PubSubSink>,
    channel: String,
    closed: Arc<Closed>,
    tasks: Mutex<Vec<AbortHandle>>,
    sent: AtomicU64,
    /// Requests with a reply, and requests whose caller no longer waits.
    done: AtomicU64,
    /// Requests with a reply.
    received: AtomicU64,
}

/// Counts a request as done when its future returns or is dropped.
struct RequestsInFlight<'a>(&'a Session);

impl Drop for RequestsInFlight<'_> {
    fn drop(&mut self) {
        self.0.done.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct Closed {
    is_set: AtomicBool,
    notify: Notify,
}

/// How many requests may be queued for a driver.
const REQUESTS_MAX: usize = 4096;

impl Session {
    /// Connects and subscribes; returns when the server has confirmed the subscription.
    ///
    /// The current runtime drives the connection.
    pub(in crate::stores) async fn open(
        address: &Address,
        channel: &str,
        epoch: u32,
        on_push: PushHandler,
    ) -> Result<Self> {
        let address = &address.with_current_password().await;
        if address.old_protocol {
            return Self::open_old(address, channel, epoch, on_push).await;
        }
        match Self::open_new(address, channel, epoch, Arc::clone(&on_push)).await {
            Err(Refused::Protocol) => Self::open_old(address, channel, epoch, on_push).await,
            Err(Refused::For(error)) => Err(error),
            Ok(session) => Ok(session),
        }
    }

    /// RESP3: one connection for requests, replies and notifications.
    async fn open_new(
        address: &Address,
        channel: &str,
        epoch: u32,
        on_push: PushHandler,
    ) -> Result<Self, Refused> {
        let stream = Stream::connect(&address.target)
            .await
            .map_err(Refused::For)?;
        let pushed = move |push: PushInfo| -> Result<(), ()> {
            if push.kind == PushKind::Message
                && let [Value::BulkString(channel), Value::BulkString(text)] = &push.data[..]
                && let (Ok(channel), Ok(text)) =
                    (std::str::from_utf8(channel), std::str::from_utf8(text))
            {
                on_push(channel, text);
            }
            Ok(())
        };
        let config = AsyncConnectionConfig::new()
            .set_push_sender(pushed)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(REQUESTS_MAX);
        let login = login(address, ProtocolVersion::RESP3);
        let (connection, driver) = MultiplexedConnection::new_with_config(&login, stream, config)
            .await
            .map_err(Refused::from_error)?;
        let closed = Arc::<Closed>::default();
        let driving = drive(driver, &closed);
        let session = Self {
            epoch,
            connection,
            subscription: None,
            channel: channel.to_owned(),
            closed,
            tasks: Mutex::new(vec![driving]),
            sent: AtomicU64::new(0),
            done: AtomicU64::new(0),
            received: AtomicU64::new(0),
        };
        let subscribed = session.connection.clone().subscribe(channel).await;
        subscribed.map_err(|error| Refused::For(reply_error::store_error(error)))?;
        Ok(session)
    }

    /// RESP2: a connection for requests, and one for the subscription.
    async fn open_old(
        address: &Address,
        channel: &str,
        epoch: u32,
        on_push: PushHandler,
    ) -> Result<Self> {
        let login = login(address, ProtocolVersion::RESP2);
        let stream = Stream::connect(&address.target).await?;
        let mut subscription = PubSub::new(&login, stream)
            .await
            .map_err(reply_error::store_error)?;
        subscription
            .subscribe(channel)
            .await
            .map_err(reply_error::store_error)?;
        let stream = Stream::connect(&address.target).await?;
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(REQUESTS_MAX);
        let (connection, driver) = MultiplexedConnection::new_with_config(&login, stream, config)
            .await
            .map_err(reply_error::store_error)?;
        let closed = Arc::<Closed>::default();
        let driving = drive(driver, &closed);
        let (sink, mut messages) = subscription.split();
        let receiving = async move {
            while let Some(message) = messages.next().await {
                if let Ok(text) = std::str::from_utf8(message.get_payload_bytes()) {
                    on_push(message.get_channel_name(), text);
                }
            }
        };
        let receiving = drive(receiving, &closed);
        let tasks = Mutex::new(vec![driving, receiving]);
        Ok(Self {
            epoch,
            connection,
            subscription: Some(sink),
            channel: channel.to_owned(),
            closed,
            tasks,
            sent: AtomicU64::new(0),
            done: AtomicU64::new(0),
            received: AtomicU64::new(0),
        })
    }

    /// Returns whether a request is in flight, and the number of replies.
    pub(in crate::stores) fn progress(&self) -> (bool, u64) {
        let done = self.done.load(Ordering::Relaxed);
        (
            self.sent.load(Ordering::Relaxed) > done,
            self.received.load(Ordering::Relaxed),
        )
    }

    pub(in crate::stores) async fn send(&self, request: &Cmd) -> Result<Value, RedisError> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let _in_flight = RequestsInFlight(self);
        let reply = self.connection.clone().send_packed_command(request).await?;
        self.received.fetch_add(1, Ordering::Relaxed);
        match reply {
            Value::ServerError(error) => Err(error.into()),
            reply => Ok(reply),
        }
    }

    /// Checks the subscribed connection and its subscription.
    pub(in crate::stores) async fn ping(&self) -> Result<()> {
        if let Some(subscription) = &self.subscription {
            // Any reply proves that the connection works, an error too.
            let reply: Result<Value, RedisError> = subscription.clone().ping().await;
            return reply.map(drop).map_err(reply_error::store_error);
        }
        // Only the server can reply to this. A proxy might reply to a PING.
        let mut request = redis::cmd("PUBSUB");
        request.arg("NUMSUB").arg(&self.channel);
        let reply = self
            .send(&request)
            .await
            .map_err(reply_error::store_error)?;
        if subscribers(&reply).is_some_and(|count| count > 0) {
            return Ok(());
        }
        self.close();
        Err(Error::unavailable(
            "the connection has lost its subscription",
        ))
    }

    /// Subscribes to one more channel.
    pub(in crate::stores) async fn listen(&self, channel: &str) -> Result<()> {
        let reply = match &self.subscription {
            Some(subscription) => subscription.clone().subscribe(channel).await,
            None => self.connection.clone().subscribe(channel).await,
        };
        reply.map_err(reply_error::store_error)
    }

    /// Unsubscribes from a channel.
    pub(in crate::stores) async fn unsubscribe(&self, channel: &str) -> Result<()> {
        let reply = match &self.subscription {
            Some(subscription) => subscription.clone().unsubscribe(channel).await,
            None => self.connection.clone().unsubscribe(channel).await,
        };
        reply.map_err(reply_error::store_error)
    }

    /// Closes the connection; every request in flight fails.
    pub(in crate::stores) fn close(&self) {
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
        self.closed.set();
    }

    /// Waits until the connection is closed.
    pub(in crate::stores) async fn closed_signal(&self) {
        self.closed.wait().await;
    }

    pub(in crate::stores) fn is_closed(&self) -> bool {
        self.closed.is_set.load(Ordering::Acquire)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close();
    }
}

impl Closed {
    fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        self.notify.notify_waiters();
    }

    async fn wait(&self) {
        loop {
            let push = self.notify.notified();
            if self.is_set.load(Ordering::Acquire) {
                return;
            }
            push.await;
        }
    }
}

/// Spawns the driver of a connection, and sets `closed` when the driver ends or is dropped.
fn drive(driver: impl Future<Output = ()> + Send + 'static, closed: &Arc<Closed>) -> AbortHandle {
    struct SetOnDrop(Arc<Closed>);
    impl Drop for SetOnDrop {
        fn drop(&mut self) {
            self.0.set();
        }
    }
    let set_on_drop = SetOnDrop(Arc::clone(closed));
    let driving = async move {
        driver.await;
        drop(set_on_drop);
    };
    tokio::spawn(driving).abort_handle()
}

fn login(address: &Address, protocol: ProtocolVersion) -> RedisConnectionInfo {
    let mut login = RedisConnectionInfo::default()
        .set_db(address.database)
        .set_protocol(protocol);
    login = login.set_lib_name("leasehold", env!("CARGO_PKG_VERSION"));
    if let Some(user) = &address.user {
        login = login.set_username(user);
    }
    match &address.password {
        Some(password) => login.set_password(password),
        None => login,
    }
}

fn subscribers(reply: &Value) -> Option<i64> {
    match reply {
        Value::Array(pair) => pair.get(1),
        Value::Map(pairs) => pairs.first().map(|(_, count)| count),
        _ => None,
    }
    .and_then(|count| {
        if let Value::Int(count) = count {
            Some(*count)
        } else {
            None
        }
    })
}

enum Refused {
    /// The server or a proxy does not support RESP3.
    Protocol,
    For(Error),
}

impl Refused {
    fn from_error(error: RedisError) -> Self {
        let text = error.to_string();
        let unknown =
            text.contains("NOPROTO") || text.contains("unknown command") && text.contains("HELLO");
        if unknown || error.kind() == redis::ErrorKind::RESP3NotSupported {
            return Self::Protocol;
        }
        Self::For(reply_error::store_error(error))
    }
}
