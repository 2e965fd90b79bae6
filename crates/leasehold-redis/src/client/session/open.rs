//! How a connection is opened: the login, the protocol and the subscription.

use std::future::{poll_fn, ready};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Poll;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join4};
use parking_lot::Mutex;

use super::wire::{Driver, Pushes, Wire};
use super::{PushHandler, Session};
use crate::client::address::Address;
use crate::client::reply_error;
use crate::client::request::{Command, RequestError, command};
use crate::client::value::Value;
use leasehold_core::internal::net::{Connector, Help, Password, Reader, Stream, Watched};
use leasehold_core::{Error, Result};

/// Waits for the replies to a login that was sent.
pub(crate) type Login = BoxFuture<'static, Result<()>>;

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
        match Self::open_by_protocol(opening, Arc::clone(&on_push)).await {
            Err(error) if lacks_resp3(&error) => {
                let address = &opening.address.clone().with_old_protocol();
                Self::open_by_protocol(Opening { address, ..opening }, on_push).await
            }
            opened => opened,
        }
    }

    async fn open_by_protocol(opening: Opening<'_>, on_push: PushHandler) -> Result<Self> {
        let (session, login) = Self::connect(opening, on_push).await?;
        login.await?;
        session.subscribe().await?;
        Ok(session)
    }

    /// Connects, and returns the session with the rest of its login. Meanwhile the first requests
    /// are sent, of which the very first must be to [`subscribe`](Self::subscribe).
    ///
    /// The current runtime drives the connection.
    pub(crate) async fn connect(
        opening: Opening<'_>,
        on_push: PushHandler,
    ) -> Result<(Self, Login)> {
        let address = &opening.address.with_current_password().await?;
        let opening = Opening { address, ..opening };
        if address.old_protocol {
            let session = Self::open_old(opening, on_push).await?;
            return Ok((session, ready(Ok(())).boxed()));
        }

        let (wire, driver) = opening.wire(Pushes::Marked, on_push).await?;
        let session = Self::of(opening, wire);
        let login = session.begin_login(driver, address).await;
        if address.user.is_none() && address.password.is_none() && address.database == 0 {
            return Ok((session, login));
        }
        // Requests behind a login that fails would be those of the default user, or for another
        // database.
        login.await?;
        Ok((session, ready(Ok(())).boxed()))
    }

    /// Connects without a subscription, for requests that any server and proxy supports.
    pub(crate) async fn open_unsubscribed(address: &Address) -> Result<Self> {
        let opening = Opening {
            connector: &connector(),
            address: &address.with_current_password().await?,
            channel: "",
            epoch: 1,
        };
        let (wire, driver) = opening.wire(Pushes::None, ignored()).await?;
        let session = Self::of(opening, wire);
        session.log_in(driver, opening.address).await?;
        Ok(session)
    }

    /// RESP2: a connection for requests, and one that is subscribed already.
    async fn open_old(opening: Opening<'_>, on_push: PushHandler) -> Result<Self> {
        let (subscription, receiving) = opening.wire(Pushes::Unmarked, on_push).await?;
        let (wire, driver) = opening.wire(Pushes::None, ignored()).await?;
        let mut session = Self::of(opening, wire);
        session.subscription = Some(subscription);

        session.log_in(receiving, opening.address).await?;
        let subscribed = session.listen(opening.channel).await;
        subscribed.map_err(named_if_closed)?;
        session.log_in(driver, opening.address).await?;
        Ok(session)
    }

    /// Returns the session of a connection that nobody drives yet.
    fn of(opening: Opening<'_>, wire: Arc<Wire>) -> Self {
        Self {
            epoch: opening.epoch,
            wire,
            subscription: None,
            channel: opening.channel.to_owned(),
            life: Watched::new(None),
            tasks: Mutex::default(),
            only_reads: AtomicBool::new(false),
        }
    }

    /// Logs in to a connection of the session.
    async fn log_in(&self, driver: Driver<Reader>, address: &Address) -> Result<()> {
        self.begin_login(driver, address).await.await
    }

    /// Sends the requests of the login, among them the name of the library, all at once.
    ///
    /// A server that refuses a client may say so before it has read a request. So the driver starts
    /// when there is a request that the refusal replies to.
    async fn begin_login(&self, driver: Driver<Reader>, address: &Address) -> Login {
        let wire = Arc::clone(driver.wire());
        let user = user_request(address, driver.pushes());
        let database = database_request(address);
        let mut login = async move {
            let replies = join4(
                sent(&wire, user),
                sent(&wire, database),
                sent(&wire, Some(info("LIB-NAME", "leasehold"))),
                sent(&wire, Some(info("LIB-VER", env!("CARGO_PKG_VERSION")))),
            );
            check_login(replies.await.into())?;
            wire.logged_in();
            Ok(())
        }
        .boxed();

        let begun = poll_fn(|context| Poll::Ready(login.as_mut().poll(context))).await;
        self.drive(driver);
        match begun {
            Poll::Ready(logged_in) => ready(logged_in).boxed(),
            Poll::Pending => login,
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
    async fn wire(
        self,
        pushes: Pushes,
        on_push: PushHandler,
    ) -> Result<(Arc<Wire>, Driver<Reader>)> {
        let (reader, writer) = self.stream().await?.into_split();
        Ok(Wire::new(reader, writer, pushes, on_push))
    }

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

/// Handles the notifications of a connection that has none.
fn ignored() -> PushHandler {
    Arc::new(|_, _| {})
}

fn user_request(address: &Address, pushes: Pushes) -> Option<Command> {
    let user = address.user.as_deref();
    let password = address.password.as_ref().map(Password::as_str);
    // A user without a password is one that needs none: such a user accepts any.
    let password = password.or(user.map(|_| ""));
    match pushes {
        Pushes::Marked => {
            let mut hello = command("HELLO");
            hello.arg("3");
            if let Some(password) = password {
                let user = user.unwrap_or("default");
                hello.arg("AUTH").arg(user).arg(password);
            }
            Some(hello)
        }
        Pushes::Unmarked | Pushes::None => password.map(|password| {
            let mut auth = command("AUTH");
            if let Some(user) = user {
                auth.arg(user);
            }
            auth.arg(password);
            auth
        }),
    }
}

fn database_request(address: &Address) -> Option<Command> {
    (address.database != 0).then(|| {
        let mut select = command("SELECT");
        select.arg(address.database.to_string());
        select
    })
}

fn info(what: &str, value: &str) -> Command {
    let mut request = command("CLIENT");
    request.arg("SETINFO").arg(what).arg(value);
    request
}

/// Sends a request, if there is one.
async fn sent(wire: &Wire, request: Option<Command>) -> Result<Value, RequestError> {
    match request {
        Some(request) => wire.send(&request).await,
        None => Ok(UNSENT),
    }
}

/// Stands for the reply to a request that was not sent. No request of a login has such a reply.
const UNSENT: Value = Value::Nil;

/// Checks the replies to the login: that of the user, of the database, and of the name and version
/// of the library, which older servers refuse.
fn check_login(replies: [Result<Value, RequestError>; 4]) -> Result<()> {
    let mut sent_requests = replies.iter().filter(|reply| !matches!(reply, Ok(UNSENT)));
    let last_words = match sent_requests.next() {
        Some(Ok(Value::Error(error))) => Some(error.first_sentence()),
        _ => None,
    };

    let refused = |error: RequestError| match &last_words {
        // The server has said why it closes the connection.
        Some(refusal) if error.is_connection_dropped() => login_error(refusal.clone().into()),
        _ => login_error(error),
    };
    let [user, database, name, version] = replies;
    accepted(user).map_err(refused)?;
    accepted(database).map_err(|error| match error.code() {
        Some("NOPERM") => refused(error).help(SELECT_HELP),
        _ => refused(error),
    })?;
    name.and(version).map_err(refused)?;
    Ok(())
}

const SELECT_HELP: &str =
    "give the user this right by ACL SETUSER … +select, or leave the database out of the URL";

/// Makes the error of the server that of the request; of a long text, the first sentence.
fn accepted(reply: Result<Value, RequestError>) -> Result<Value, RequestError> {
    match reply? {
        Value::Error(error) => Err(error.first_sentence().into()),
        reply => Ok(reply),
    }
}

/// The error of a login. A server whose first bytes are no reply, such as one that speaks HTTP,
/// will not speak Redis later either. A reply without its end is a connection that broke.
fn login_error(error: RequestError) -> Error {
    if let RequestError::Malformed(_) = error {
        return Error::unsupported("the server does not speak Redis")
            .help("check the host and the port, and whether the port needs TLS (rediss://)")
            .caused_by(error);
    }
    named_if_closed(reply_error::store_error(error))
}

/// Names what may close each new connection, if it was closed.
fn named_if_closed(error: Error) -> Error {
    if reply_error::cause(&error).is_some_and(RequestError::is_connection_dropped) {
        return error.help(
            "if that happens to each connection, a proxy or another service closes it: leasehold \
             needs HELLO and SUBSCRIBE, or with protocol=2 CLIENT and SUBSCRIBE",
        );
    }
    error
}

/// Whether the server or a proxy does not support RESP3.
pub(crate) fn lacks_resp3(error: &Error) -> bool {
    let Some(RequestError::Refused(error)) = reply_error::cause(error) else {
        return false;
    };
    let text = error.to_string();
    let is_unknown = text.contains("unknown command") && text.contains("HELLO");
    is_unknown || error.code() == "NOPROTO"
}
