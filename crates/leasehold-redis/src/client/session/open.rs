//! How a connection is opened: the login, the protocol and the subscription.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use futures_util::StreamExt;
use parking_lot::Mutex;
use redis::aio::{MultiplexedConnection, PubSub, PubSubStream};
use redis::{
    AsyncConnectionConfig, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo,
    RedisError, Value,
};
use tokio::runtime::Handle;

use super::{INVALIDATION, PushHandler, Session};
use crate::client::address::Address;
use crate::client::reply_error;
use leasehold_core::internal::background;
use leasehold_core::internal::net::{CloseOnDrop, Connector, Help, Stream, Watched};
use leasehold_core::{Error, Result};

/// How many requests may be queued for a driver.
const REQUESTS_MAX: usize = 4096;

/// A connection that is being opened.
#[derive(Clone, Copy)]
pub(crate) struct Opening<'a> {
    pub(crate) connector: &'a Connector,
    pub(crate) address: &'a Address,
    /// The channel to which the connection will be subscribed.
    pub(crate) channel: &'a str,
    pub(crate) epoch: u32,
}

impl Session {
    /// Connects and subscribes; returns when the server has confirmed the subscription.
    ///
    /// The current runtime drives the connection.
    pub(crate) async fn open(opening: Opening<'_>, on_push: PushHandler) -> Result<Self> {
        let session = Self::connect(opening, on_push).await?;
        session.subscribe().await?;
        Ok(session)
    }

    /// Connects. The first request of the connection must be to [`subscribe`](Self::subscribe).
    ///
    /// The current runtime drives the connection.
    pub(crate) async fn connect(opening: Opening<'_>, on_push: PushHandler) -> Result<Self> {
        let address = &opening.address.with_current_password().await?;
        let opening = Opening { address, ..opening };
        if address.old_protocol {
            return Self::open_old(opening, on_push).await;
        }
        match Self::open_new(opening, Arc::clone(&on_push)).await {
            Err(error) if lacks_resp3(&error) => Self::open_old(opening, on_push).await,
            opened => opened,
        }
    }

    /// Connects without a subscription, for requests that any server and proxy supports.
    pub(crate) async fn open_unsubscribed(address: &Address) -> Result<Self> {
        let opening = Opening {
            connector: &connector(),
            address: &address.with_current_password().await?,
            channel: "",
            epoch: 1,
        };
        Self::log_in(opening, ProtocolVersion::RESP2, config()).await
    }

    /// RESP3: one connection for requests, replies and notifications.
    async fn open_new(opening: Opening<'_>, on_push: PushHandler) -> Result<Self> {
        let config = config().set_push_sender(push_sender(on_push));
        Self::log_in(opening, ProtocolVersion::RESP3, config).await
    }

    /// RESP2: a connection for requests, and one that is subscribed already.
    async fn open_old(opening: Opening<'_>, on_push: PushHandler) -> Result<Self> {
        let (subscription, messages) = subscribe(opening).await?.split();
        let mut session = Self::log_in(opening, ProtocolVersion::RESP2, config()).await?;

        session.drive(receive(messages, on_push));
        session.subscription = Some(subscription);
        Ok(session)
    }

    async fn log_in(
        opening: Opening<'_>,
        protocol: ProtocolVersion,
        config: AsyncConnectionConfig,
    ) -> Result<Self> {
        let login = login(opening.address, protocol);
        let mut stream = opening.stream().await?;
        let first_bytes = stream.first_bytes();
        let connecting = MultiplexedConnection::new_with_config(&login, stream, config);
        let connected = connecting.await;
        let (connection, driver) =
            connected.map_err(|error| login_error(error, &first_bytes.lock()))?;

        let mut session = Self::new(opening.epoch, opening.channel, connection);
        session.drive(driver);
        Ok(session)
    }

    /// Spawns a task of the connection. The session is closed when the task ends or is dropped.
    fn drive(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        let close_on_drop = CloseOnDrop(self.life.clone());
        let here = Handle::try_current().ok();
        let driving = background::spawn_on(here.as_ref(), async move {
            task.await;
            drop(close_on_drop);
        });
        self.tasks.get_mut().push(driving);
    }

    fn new(epoch: u32, channel: &str, connection: MultiplexedConnection) -> Self {
        Self {
            epoch,
            connection,
            subscription: None,
            channel: channel.to_owned(),
            life: Watched::new(None),
            tasks: Mutex::default(),
            sent: AtomicU64::new(0),
            done: AtomicU64::new(0),
            received: AtomicU64::new(0),
            only_reads: AtomicBool::new(false),
        }
    }

    /// Subscribes to the channel of the session, unless that was done before.
    pub(crate) async fn subscribe(&self) -> Result<()> {
        match &self.subscription {
            Some(_) => Ok(()),
            None => self.listen(&self.channel).await.map_err(named_if_closed),
        }
    }
}

impl Opening<'_> {
    async fn stream(self) -> Result<Stream> {
        let connected = self.connector.connect(&self.address.target).await;
        connected.map_err(|error| {
            if self.address.is_announced && error.is_unavailable() {
                return error.help(ANNOUNCED_HELP);
            }
            error
        })
    }
}

const ANNOUNCED_HELP: &str = "the sentinels or the nodes of the cluster announce this address; if \
     clients reach the server at another one, write address-map=ANNOUNCED=REACHED";

/// Returns what connects to Redis servers. All connections of an address share it.
pub(crate) fn connector() -> Connector {
    static HELP: Help = Help {
        plain_scheme: "redis://",
        server_name: " (or write it as server-name=)",
        socket: "check the path, and `unixsocketperm` of the server",
    };
    Connector::new(&HELP)
}

fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_pipeline_buffer_size(REQUESTS_MAX)
}

/// Returns the function that forwards messages of a RESP3 connection.
fn push_sender(on_push: PushHandler) -> impl Fn(PushInfo) -> Result<(), ()> + Send + Sync {
    move |push| {
        if push.kind == PushKind::Invalidate {
            on_push(INVALIDATION, "");
        }
        if push.kind == PushKind::Message
            && let [Value::BulkString(channel), Value::BulkString(text)] = &push.data[..]
            && let (Ok(channel), Ok(text)) =
                (std::str::from_utf8(channel), std::str::from_utf8(text))
        {
            on_push(channel, text);
        }
        Ok(())
    }
}

async fn subscribe(opening: Opening<'_>) -> Result<PubSub> {
    let login = login(opening.address, ProtocolVersion::RESP2);
    let mut stream = opening.stream().await?;
    let first_bytes = stream.first_bytes();
    let connected = PubSub::new(&login, stream).await;
    let mut subscription = connected.map_err(|error| login_error(error, &first_bytes.lock()))?;

    let subscribed = subscription.subscribe(opening.channel).await;
    subscribed.map_err(|error| named_if_closed(reply_error::store_error(error)))?;
    Ok(subscription)
}

/// Forwards messages of a RESP2 subscription.
async fn receive(mut messages: PubSubStream, on_push: PushHandler) {
    while let Some(message) = messages.next().await {
        if let Ok(text) = std::str::from_utf8(message.get_payload_bytes()) {
            on_push(message.get_channel_name(), text);
        }
    }
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
        Some(password) => login.set_password(password.as_str()),
        None => login,
    }
}

/// The error of a login. A server whose first bytes are no reply, such as one that speaks HTTP, will
/// not speak Redis later either. A reply without its end is a connection that broke.
///
/// `first_bytes` are those of the server: why it has closed the connection, if it says so.
fn login_error(error: RedisError, first_bytes: &[u8]) -> Error {
    if let Some(refusal) = refusal_in(first_bytes).filter(|_| error.is_connection_dropped()) {
        return reply_error::store_error(refusal);
    }
    let is_cut = error.to_string().contains("end of input");
    if error.kind() == ErrorKind::Parse && !is_cut {
        return Error::unsupported("the server does not speak Redis")
            .help("check the host and the port, and whether the port needs TLS (rediss://)")
            .caused_by(error);
    }
    named_if_closed(reply_error::store_error(error))
}

/// Returns the error that a server has sent as its first reply; of a long text, the first sentence.
fn refusal_in(bytes: &[u8]) -> Option<RedisError> {
    let line = std::str::from_utf8(bytes).ok()?.lines().next()?;
    let sentence = line.split(". ").next()?;
    match redis::parse_redis_value(format!("{sentence}\r\n").as_bytes()) {
        Ok(Value::ServerError(error)) => Some(error.into()),
        _ => None,
    }
}

/// Names what may close each new connection, if it was closed.
fn named_if_closed(error: Error) -> Error {
    let cause = std::error::Error::source(&error);
    let cause = cause.and_then(|cause| cause.downcast_ref::<RedisError>());
    if cause.is_some_and(RedisError::is_connection_dropped) {
        return error.help(
            "if that happens to each connection, a proxy or another service closes it: leasehold \
             needs HELLO and SUBSCRIBE, or with protocol=2 CLIENT and SUBSCRIBE",
        );
    }
    error
}

/// Whether the server or a proxy does not support RESP3.
fn lacks_resp3(error: &Error) -> bool {
    let cause = std::error::Error::source(error);
    let Some(cause) = cause.and_then(|cause| cause.downcast_ref::<RedisError>()) else {
        return false;
    };
    let text = cause.to_string();
    let is_unknown = text.contains("unknown command") && text.contains("HELLO");
    is_unknown || text.contains("NOPROTO") || cause.kind() == ErrorKind::RESP3NotSupported
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::time::timeout;

    use super::*;

    /// Replies to every request of a login.
    async fn accept(mut server: DuplexStream) {
        let mut requests = [0; 4096];
        while let Ok(count @ 1..) = server.read(&mut requests).await {
            let begun = requests[..count].iter().filter(|byte| **byte == b'*');
            let replies = "+OK\r\n".repeat(begun.count());
            if server.write_all(replies.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    /// No task polls the driver, so the request stays in its queue.
    #[tokio::test]
    async fn request_that_the_driver_never_sees_fails_when_the_connection_closes() {
        let (client, server) = tokio::io::duplex(4096);
        tokio::spawn(accept(server));
        let login = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP2);
        let connecting = MultiplexedConnection::new_with_config(&login, client, config());
        let (connection, _driver) = connecting.await.expect("the login is accepted");
        let session = Session::new(1, "", connection);

        let request = redis::cmd("PING");
        let mut sending = std::pin::pin!(session.send(&request));
        assert!(futures_util::poll!(&mut sending).is_pending());
        session.close();

        let reply = timeout(Duration::from_secs(5), sending)
            .await
            .expect("the request ends with the connection");
        assert!(reply.is_err_and(|error| error.is_connection_dropped()));
    }
}
