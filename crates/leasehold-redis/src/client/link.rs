//! A connection that is re-established whenever it breaks, until its store is closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join, try_join};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use super::address::Address;
use super::endpoint::Endpoint;
use super::reply_error;
use super::session::{Handshake, Opening, PushHandler, Session, lacks_resp3};
use leasehold_core::internal::background;
use leasehold_core::internal::net::{
    self, AttemptLimit, Attempts, Connect, Epochs, Pauses, Supervised, Up,
};
use leasehold_core::{Error, Result};

/// How long one attempt to connect may take with one version of the protocol.
const CONNECT_MAX: Duration = Duration::from_secs(5);
const BACKOFF_MIN: Duration = Duration::from_millis(10);
/// The time between two attempts to connect, if the first one led to a replica.
const REPLICA_INTERVAL: Duration = Duration::from_secs(1);
/// How often the link checks that replies arrive.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// After this many checks without a reply to a request in flight, the connection counts as deaf.
const SILENT_CHECKS_MAX: u32 = 4;
/// After this many checks the handshake is repeated.
const HANDSHAKE_EVERY: u32 = 120;

pub(crate) type Link = Supervised<Session>;
pub(crate) type State = net::State<Session>;
/// Performs the handshake of a new session, and repeats it from time to time.
pub(crate) type DoHandshake =
    Arc<dyn Fn(Arc<Session>) -> BoxFuture<'static, Result<Handshake>> + Send + Sync>;

/// The links of a client to one server.
#[derive(Debug)]
pub(crate) struct Links {
    pub(crate) caller: Link,
    pub(crate) background: Link,
}

impl Links {
    /// Waits until both links have tried to connect.
    pub(crate) async fn first(&self) -> Result<()> {
        self.background.first().await?;
        self.caller.first().await
    }

    /// Returns the caller link if the caller's runtime drives it, and the background link
    /// otherwise.
    pub(crate) fn for_request(&self) -> &Link {
        if self.caller.is_on_caller_runtime() {
            &self.caller
        } else {
            &self.background
        }
    }

    /// Closes both connections, so that both links connect again.
    #[cold]
    pub(crate) fn reconnect(&self) {
        self.caller.reconnect();
        self.background.reconnect();
    }
}

#[derive(Clone)]
pub(crate) struct LinkConfig {
    pub(crate) endpoint: Endpoint,
    pub(crate) channel: String,
    pub(crate) on_push: PushHandler,
    pub(crate) handshake: DoHandshake,
    /// The runtime that drives the connection; `None` for the background thread. The background
    /// thread also takes over at a reconnect, if the runtime has ended or is not polled.
    pub(crate) runtime: Option<Handle>,
    pub(crate) epochs: Epochs,
    pub(crate) limit: AttemptLimit,
}

impl LinkConfig {
    /// A link on the background thread that ignores notifications and has no handshake.
    pub(crate) fn new(endpoint: Endpoint, channel: String) -> Self {
        let limit = AttemptLimit::new(CONNECT_MAX, endpoint.settings().crash_grace);
        Self {
            endpoint,
            limit,
            channel,
            on_push: Arc::new(|_, _| {}),
            handshake: Arc::new(|_| Box::pin(async { Ok(None) })),
            runtime: None,
            epochs: Epochs::default(),
        }
    }
}

impl Connect<Session> for LinkConfig {
    fn attempts(&self) -> Attempts {
        let grace = self.endpoint.settings().crash_grace;
        Attempts {
            pauses: Pauses::within_grace(BACKOFF_MIN, grace, fastrand::f64),
            epochs: self.epochs.clone(),
            runtime: self.runtime.as_ref().map(Handle::id),
        }
    }

    async fn attempt(&mut self, epoch: u32, up: &mut Up<Session>) -> Result<()> {
        let refusals = self.endpoint.refusals();
        let begun = Instant::now();
        let connected = connect(self, epoch).await;
        self.limit.attempted(begun.elapsed(), connected.is_ok());
        let connected = connected.inspect_err(|error| {
            tracing::debug!(server = %self.endpoint, %error, "cannot connect");
        })?;
        let session = &connected.session;
        up.publish(session, &connected.handshake_result);

        tokio::select! {
            biased;
            error = self.endpoint.refused(session, refusals) => Err(error),
            () = monitor(self, session, &connected.handshake_result) => Ok(()),
            () = self.endpoint.moved_from(&connected.address) => Ok(()),
        }
    }

    fn interval_after(&self, error: &Error) -> Option<Duration> {
        interval_after(error, self.endpoint.settings().crash_grace)
    }
}

/// Returns the time from an attempt that led to a replica to the next one.
///
/// A replica stays one for longer than a server loads its data. A hold must survive the pause.
fn interval_after(error: &Error, grace: Option<Duration>) -> Option<Duration> {
    let longest = grace.map_or(REPLICA_INTERVAL, |grace| REPLICA_INTERVAL.min(grace / 8));
    reply_error::shows_replica(error).then_some(longest)
}

/// A session after its handshake.
struct Connected {
    session: Arc<Session>,
    address: Address,
    handshake_result: Handshake,
}

/// Connects to the server that has the role of the endpoint.
///
/// If the role moves meanwhile, the attempt ends: a server that has lost the role may be paused.
async fn connect(config: &mut LinkConfig, epoch: u32) -> Result<Connected> {
    let endpoint = config.endpoint.clone();
    let locating = timeout(config.limit.get(), endpoint.locate()).await;
    let address = locating.unwrap_or_else(|_| Err(Error::unavailable("no sentinel replies")))?;
    tokio::select! {
        biased;
        connected = connect_by_any_protocol(config, address.clone(), epoch) => connected,
        () = endpoint.moved_from(&address) => {
            Err(Error::unavailable("another server has become the master"))
        }
    }
}

/// Connects by RESP3, or by RESP2 if the server or a proxy does not support it.
async fn connect_by_any_protocol(
    config: &mut LinkConfig,
    address: Address,
    epoch: u32,
) -> Result<Connected> {
    match connect_to(config, address.clone(), epoch).await {
        Err(error) if lacks_resp3(&error) => {
            let connected = connect_to(config, address.clone().with_old_protocol(), epoch).await?;
            Ok(Connected {
                address,
                ..connected
            })
        }
        connected => connected,
    }
}

async fn connect_to(config: &mut LinkConfig, address: Address, epoch: u32) -> Result<Connected> {
    address.target.resolve().await?;
    let LinkConfig {
        endpoint,
        handshake,
        runtime,
        ..
    } = config;
    let limit = config.limit.get();
    let located = address.clone();
    let connector = endpoint.connector.clone();
    let channel = config.channel.clone();
    let on_push = Arc::clone(&config.on_push);
    let begun = Arc::new(AtomicBool::new(false));
    let begins = Arc::clone(&begun);

    let opening = async move {
        begins.store(true, Ordering::Release);
        let opening = Opening {
            connector: &connector,
            address: &address,
            channel: &channel,
            epoch,
        };
        Session::connect(opening, on_push).await
    };

    let handshaken = async {
        let Ok(opened) = background::run_on(runtime.as_ref(), opening).await else {
            // From now on the background thread drives the connection.
            *runtime = None;
            return Err(Error::unavailable(
                "the runtime that drove the connection has ended",
            ));
        };
        let (session, login) = opened?;
        let session = Arc::new(session);
        let checking = async {
            endpoint.verify(&session).await?;
            handshake(Arc::clone(&session)).await
        };

        // The server executes the login first, and then the subscription. The checks do not wait
        // for the replies: a login without a password gives no rights. Behind a refused login the
        // server may reply to nothing.
        let rest = join(session.subscribe(), checking).map(Ok);
        let ((), (subscribed, checked)) = try_join(login, rest).await?;
        subscribed?;
        let handshake_result = checked?;
        Ok(Connected {
            session,
            address: located,
            handshake_result,
        })
    };

    if let Ok(connected) = timeout(limit, handshaken).await {
        return connected;
    }
    if begun.load(Ordering::Acquire) {
        return Err(no_reply(endpoint.is_encrypted(), limit));
    }
    *runtime = None;
    Err(Error::unavailable(
        "the runtime that drove the connection is not polled",
    ))
}

fn no_reply(is_encrypted: bool, limit: Duration) -> Error {
    let error = Error::unavailable(format!("the server did not reply within {limit:?}"));
    if is_encrypted {
        error.help("check that this port uses TLS; without TLS, write redis:// or redlock://")
    } else {
        error
    }
}

/// Returns when the session has ended or is deaf, or the server has changed.
///
/// One timer serves all requests: a timer per request would cost as much time as the request.
async fn monitor(config: &LinkConfig, session: &Arc<Session>, handshake_result: &Handshake) {
    let mut silent = 0;
    let mut received = 0;
    for check in 1u32.. {
        let closed = timeout(POLL_INTERVAL, session.closed_signal());
        if closed.await.is_ok() {
            return;
        }

        let (in_flight, now_received) = session.progress();
        let is_silent = in_flight && now_received == received;
        silent = if is_silent { silent + 1 } else { 0 };
        received = now_received;
        if silent >= SILENT_CHECKS_MAX {
            return;
        }

        let is_handshake_due = check % HANDSHAKE_EVERY == 0;
        if is_handshake_due && !is_same_server(config, session, handshake_result).await {
            return;
        }
    }
}

async fn is_same_server(
    config: &LinkConfig,
    session: &Arc<Session>,
    handshake_result: &Handshake,
) -> bool {
    let again = timeout(CONNECT_MAX, (config.handshake)(Arc::clone(session))).await;
    again.is_ok_and(|again| again.is_ok_and(|again| again == *handshake_result))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replica_is_tried_once_a_second_unless_a_hold_would_end() {
        let seconds = Duration::from_secs;
        let replica = reply_error::read_only();

        assert_eq!(interval_after(&replica, None), Some(seconds(1)));
        assert_eq!(
            interval_after(&replica, Some(seconds(10))),
            Some(seconds(1))
        );
        assert_eq!(
            interval_after(&replica, Some(seconds(2))),
            Some(seconds(2) / 8)
        );
        let broke = Error::unavailable("the connection broke");
        assert_eq!(interval_after(&broke, None), None);
    }
}
