//! One connection to the server.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, duplex};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, Notification};
use tokio_util::io::InspectReader;

use super::address::Address;
use super::driver::Driver;
use super::reply_error::store_error;
use super::schema;
use leasehold_core::internal::background;
use leasehold_core::internal::net::{CloseOnDrop, Connector, Help, Host, Target, Watched};
use leasehold_core::{Error, Result};

/// A connection that has logged in. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) client: Client,
    /// Whether the other end is the server itself, and not a pooler, which accepts LISTEN, settings and
    /// advisory locks, and gives them to somebody else.
    pub(super) is_direct: bool,
    /// Counts how many times something has arrived.
    heard: Arc<AtomicU64>,
    /// Closed when a connection of the session has ended.
    ended: Watched<()>,
    driver: Arc<Driver>,
}

/// A request without a reply. If nothing at all arrives on its connection until a moment, the
/// connection may be dead, and its session ends. That does not need the caller, who may wait for a
/// shorter time, and send the next request to the same connection.
///
/// A server that is only slow keeps its session: without it every waiter of this client would be
/// passed over.
#[derive(Debug)]
pub(super) struct Unanswered {
    heard: Arc<AtomicU64>,
    heard_before: u64,
    ended: Watched<()>,
    until: Instant,
}

impl Unanswered {
    fn is_silent(&self) -> bool {
        self.heard.load(Ordering::Relaxed) == self.heard_before
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if !self.is_silent() {
            return;
        }
        if Instant::now() >= self.until {
            return self.ended.close();
        }
        let later = Self {
            heard: Arc::clone(&self.heard),
            ended: self.ended.clone(),
            ..*self
        };
        background::spawn(async move {
            sleep_until(later.until).await;
            drop(later);
        });
    }
}

/// Called with each notification of a connection.
pub(super) type OnNotification = Box<dyn Fn(&Notification) + Send + Sync>;

impl Connection {
    /// Connects, logs in, and sets what a session with the server itself depends on. Behind a pooler
    /// nothing is set, because other clients get the same session.
    pub(super) async fn open(
        address: &Address,
        connector: &Connector,
        target: &Target,
        ended: &Watched<()>,
        on_notification: OnNotification,
    ) -> Result<Self> {
        let mut config = Config::new();
        config
            .user(&address.user)
            .dbname(&address.database)
            .application_name("leasehold");
        if let Some(password) = &address.password {
            config.password(password.current(address).await?.as_str());
        }

        target.resolve().await?;
        let opening = async {
            let mut connection = if let Target::Tcp {
                host,
                tls: Some(tls),
            } = target
            {
                let opened = request_encryption(host);
                let stream = connector.encrypt(opened, host, tls).await?;
                log_in(&config, stream, ended, on_notification).await?
            } else {
                let stream = connector.connect(target).await?;
                log_in(&config, stream, ended, on_notification).await?
            };
            let client = &connection.client;
            let server_pid = schema::check_server(client).await?;
            connection.is_direct = announced_pid(client).await? == server_pid;
            if connection.is_direct {
                set_up(client).await?;
            }
            Ok(connection)
        };
        timeout(CONNECT_TIMEOUT, opening).await.map_err(|_| {
            Error::unavailable(format!("no reply to the login within {CONNECT_TIMEOUT:?}"))
        })?
    }

    /// Notes that a request is sent, which is answered within `silence_max` unless the connection is
    /// dead.
    pub(super) fn unanswered(&self, silence_max: Duration) -> Unanswered {
        Unanswered {
            heard: Arc::clone(&self.heard),
            heard_before: self.heard.load(Ordering::Relaxed),
            ended: self.ended.clone(),
            until: Instant::now() + silence_max,
        }
    }

    /// Sends a request, which its future hands over when it is first polled, and waits for the reply.
    pub(super) async fn send<T>(&self, request: impl Future<Output = T>) -> T {
        self.driver.send(request).await
    }

    pub(super) fn close(&self) {
        self.driver.close();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}

/// Connects to a host, and asks it for TLS before anything else is sent.
async fn request_encryption(host: &Host) -> Result<TcpStream> {
    let mut stream = host.connect().await?;
    let lost = |error| Error::unavailable(format!("{host}: {error}")).caused_by(error);
    stream.write_all(&SSL_REQUEST).await.map_err(lost)?;
    let mut reply = [0];
    stream.read_exact(&mut reply).await.map_err(lost)?;
    if reply == *b"S" {
        return Ok(stream);
    }
    Err(Error::denied(format!("the server {host} has no TLS"))
        .help("turn it on (ssl = on), or write ?sslmode=disable if the network is trusted"))
}

/// The length of the message, and the code of a request for TLS.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

async fn log_in<S>(
    config: &Config,
    stream: S,
    ended: &Watched<()>,
    on_notification: OnNotification,
) -> Result<Connection>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let heard = Arc::<AtomicU64>::default();
    let counter = Arc::clone(&heard);
    let stream = InspectReader::new(stream, move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let connecting = config.connect_raw(stream, NoTls);
    let (client, mut connection) = connecting.await.map_err(login_error)?;
    let close_on_drop = CloseOnDrop(ended.clone());
    let driver = Arc::new(Driver::new(Box::new(move |context| {
        let _ended = &close_on_drop;
        loop {
            match ready!(connection.poll_message(context)) {
                Some(Ok(AsyncMessage::Notification(notification))) => {
                    on_notification(&notification);
                }
                Some(Ok(AsyncMessage::Notice(notice))) => tracing::debug!(%notice, "PostgreSQL"),
                Some(Ok(_)) => {}
                // All requests of the connection end with this error.
                Some(Err(_)) | None => return Poll::Ready(()),
            }
        }
    })));
    let in_background = Arc::clone(&driver);
    background::spawn(async move { in_background.run().await });
    Ok(Connection {
        client,
        is_direct: false,
        heard,
        ended: ended.clone(),
        driver,
    })
}

/// Returns the process id that the other end announced at the login: a pooler announces another one
/// than that of the server. The client library shows it in a request to cancel alone.
async fn announced_pid(client: &Client) -> Result<i32> {
    let mut request = [0; 16];
    let (own, mut other) = duplex(request.len());
    let cancelling = client.cancel_token();
    cancelling
        .cancel_query_raw(own, NoTls)
        .await
        .map_err(store_error)?;
    let written = other.read_exact(&mut request).await;
    written.expect("the request was written");

    // The length of the message and its code precede it.
    let [_, _, _, _, _, _, _, _, pid @ .., _, _, _, _] = request;
    Ok(i32::from_be_bytes(pid))
}

async fn set_up(client: &Client) -> Result<()> {
    let sets: Vec<String> = SETTINGS
        .iter()
        .map(|setting| format!("SET {setting}"))
        .collect();
    let sets = sets.join("; ");
    client.batch_execute(&sets).await.map_err(|error| {
        let refused = error
            .as_db_error()
            .filter(|reply| REFUSED_SETTING.contains(reply.code()));
        let Some(reply) = refused else {
            return store_error(error);
        };
        let what = format!(
            "the server refuses a setting that locks depend on: {}",
            reply.message()
        );
        Error::unsupported(what).caused_by(error)
    })
}

/// The setting is unknown, its value is, or only others may set it.
const REFUSED_SETTING: [SqlState; 3] = [
    SqlState::UNDEFINED_OBJECT,
    SqlState::INVALID_PARAMETER_VALUE,
    SqlState::INSUFFICIENT_PRIVILEGE,
];

/// The defaults of a role apply to our sessions too, so each of them is set.
const SETTINGS: &[&str] = &[
    "statement_timeout = '20s'",
    "default_transaction_isolation = 'read committed'",
    "default_transaction_read_only = off",
    "default_transaction_deferrable = off",
    "lock_timeout = '2s'",
    "idle_session_timeout = 0",
    "idle_in_transaction_session_timeout = '20s'",
    "search_path = pg_catalog, pg_temp",
    "client_min_messages = warning",
    // The end of a killed client is noticed while its statement runs, and that of an unreachable
    // machine too.
    "client_connection_check_interval = '500ms'",
    "tcp_user_timeout = '5s'",
    "tcp_keepalives_idle = 2",
    "tcp_keepalives_interval = 1",
    "tcp_keepalives_count = 3",
];

/// Maps the error of a login. What is not the server's reply is a failed connection.
fn login_error(error: tokio_postgres::Error) -> Error {
    let is_password_missing = error
        .source()
        .is_some_and(|cause| cause.to_string().contains("password"));
    if error.as_db_error().is_none() && is_password_missing {
        return Error::denied("PostgreSQL: the server demands a password")
            .help("give the password in the URL or with ?password-file=")
            .caused_by(error);
    }
    store_error(error)
}

pub(super) static HELP: Help = Help {
    plain_scheme: "postgres://…?sslmode=disable",
    server_name: "",
    socket: "check that the server runs on this machine, and name the folder of its socket: \
             ?host=/var/run/postgresql",
};

/// How long a server has to accept a connection and the login.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
