//! The task that keeps a session: it connects, sends heartbeats, and opens a new session when the
//! last one has ended.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use zookeeper_client::{Client, Error as ZkError, MultiWriteError};

use super::address::Address;
use super::liveness::{self, Heartbeat, Liveness};
use super::reply_error::{store_error, without_panic};
use super::session::{Session, unconfirmed};
use super::tls;
use leasehold_core::internal::{
    self, Backoff, BootInstant, Host, background, io_reason, reconnected,
};
use leasehold_core::{Error, Result};

/// Keeps a session until it is dropped.
#[derive(Debug)]
pub(super) struct SessionSupervisor {
    states: watch::Receiver<State>,
    task: AbortHandle,
}

/// Whether there is a session.
#[derive(Clone, Debug)]
enum State {
    /// The reason is missing during the first connect.
    Missing(Option<Error>),
    Connected(Arc<Session>),
}

impl SessionSupervisor {
    pub(super) fn start(address: Arc<Address>) -> Self {
        let (publish, states) = watch::channel(State::Missing(None));
        let task =
            background::spawn_restarting(move || supervise(Arc::clone(&address), publish.clone()));
        Self { states, task }
    }

    /// Waits for the first session, or for the error of the first connect.
    pub(super) async fn first(&self) -> Result<Arc<Session>> {
        let mut states = self.states.clone();
        let found = states
            .wait_for(|state| !matches!(state, State::Missing(None)))
            .await;
        match found.map(|state| state.clone()) {
            Ok(State::Connected(session)) => Ok(session),
            Ok(State::Missing(error)) => Err(error.unwrap_or_else(closed)),
            Err(_) => Err(closed()),
        }
    }

    /// Returns the session, waiting up to `limit` for one.
    pub(super) async fn session(&self, limit: Duration) -> Result<Arc<Session>> {
        if let Some(session) = self.current() {
            return Ok(session);
        }

        let mut states = self.states.clone();
        let found = pin!(
            states
                .wait_for(|state| matches!(state, State::Connected(session) if !session.is_over()))
        );
        let Ok(found) = timeout(limit, found).await else {
            return Err(self.absent());
        };
        match found.map(|state| state.clone()) {
            Ok(State::Connected(session)) => Ok(session),
            _ => Err(closed()),
        }
    }

    /// Returns a session that certainly exists for some more time, waiting up to `limit` for one.
    pub(super) async fn confirmed_session(&self, limit: Duration) -> Result<Arc<Session>> {
        let confirmed = async {
            loop {
                let session = self.session(limit).await?;
                session.confirmed().await;
                if session.is_confirmed() {
                    return Ok(session);
                }
            }
        };
        timeout(limit, confirmed)
            .await
            .unwrap_or_else(|_| Err(unconfirmed()))
    }

    /// Returns the present session.
    pub(super) fn current(&self) -> Option<Arc<Session>> {
        match &*self.states.borrow() {
            State::Connected(session) if !session.is_over() => Some(Arc::clone(session)),
            _ => None,
        }
    }

    fn absent(&self) -> Error {
        match &*self.states.borrow() {
            State::Missing(Some(error)) => error.clone(),
            _ => Error::unavailable("there is no session"),
        }
    }
}

impl Drop for SessionSupervisor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Opens one session after another.
///
/// After a panic it runs again, and first gives up the session that has no heartbeats since.
async fn supervise(address: Arc<Address>, publish: watch::Sender<State>) {
    publish.send_if_modified(end_session);
    let mut backoff = Backoff::between(BACKOFF_MIN, BACKOFF_MAX);
    let mut had_session = false;
    loop {
        let sent_at = BootInstant::now();
        // The client library resolves names on threads of tokio, which panics without one.
        match internal::without_panic(connect(&address, address.settings.session)).await {
            Ok(client) => {
                backoff.reset();
                warn_of_other_timeout(&address, &client);
                if had_session {
                    reconnected("zookeeper");
                }
                had_session = true;

                let liveness = Liveness::started(sent_at, BootInstant::now());
                let session = Arc::new(Session::new(client, &liveness));

                // Sending fails when the store is dropped. This task is aborted then.
                let _ = publish.send(State::Connected(Arc::clone(&session)));
                keep_alive(&session, &address, liveness).await;
                publish.send_if_modified(end_session);
            }
            Err(error) => {
                // Requests that find no session return this error.
                let _ = publish.send(State::Missing(Some(error)));
                backoff.wait().await;
            }
        }
    }
}

/// Gives up the session, if there is one; returns whether this changes the state.
fn end_session(state: &mut State) -> bool {
    let State::Connected(session) = state else {
        return false;
    };
    session.give_up();
    *state = State::Missing(Some(Error::unavailable("the session has ended")));
    true
}

pub(super) async fn connect(address: &Address, session: Duration) -> Result<Client> {
    let mut connector = Client::connector()
        .with_session_timeout(session)
        .with_fail_eagerly();
    if let Some(login) = &address.credentials {
        connector = connector.with_auth("digest", login.digest(address).await?.as_bytes());
    }
    if let Some(tls) = &address.tls {
        connector = tls::encrypted(connector, &address.servers, tls)?;
    }

    match (connector.connect(&address.cluster()).await, &address.tls) {
        (Err(error), Some(tls)) => Err(tls::refusal(&address.servers, tls)
            .await
            .unwrap_or_else(|| store_error(error))),
        (Err(error @ (ZkError::NoHosts | ZkError::Timeout)), None) => {
            Err(unreachable(&address.servers).await.caused_by(error))
        }
        (connected, _) => connected.map_err(store_error),
    }
}

/// Returns the error of an ensemble that cannot be reached, with a reason for each server.
///
/// The client library reports only that it has no connection. So this connects to each server
/// once more.
async fn unreachable(servers: &[Host]) -> Error {
    let reasons = join_all(servers.iter().map(reason)).await;
    Error::unavailable(format!("no server can be reached: {}", reasons.join(", ")))
}

async fn reason(server: &Host) -> String {
    let connecting = async {
        let addresses = server.addresses().await.map_err(io::Error::other)??;
        TcpStream::connect(&*addresses).await
    };
    match timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(Err(error)) if !is_closed(&error) => format!("{server}: {}", io_reason(&error)),
        Ok(_) => format!(
            "{server}: it accepts connections, but no session; is it in a quorum, and is its \
             maxClientCnxns reached?"
        ),
        Err(_elapsed) => format!("{server}: no reply within {CONNECT_TIMEOUT:?}"),
    }
}

/// Whether the server has accepted a connection and closed it at once.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    [BrokenPipe, ConnectionReset].contains(&error.kind())
}

fn warn_of_other_timeout(address: &Address, client: &Client) {
    let requested = address.settings.session;
    let agreed = client.session_timeout();
    if requested != agreed {
        tracing::warn!(
            store = %address, ?requested, ?agreed,
            "the servers set a session timeout other than the requested one"
        );
    }
}

/// Sends heartbeats until the session is over.
async fn keep_alive(session: &Arc<Session>, address: &Arc<Address>, mut liveness: Liveness) {
    let mut measurement: Option<AbortHandle> = None;
    let heartbeats = async {
        loop {
            session.next_heartbeat(&liveness).await;
            let is_measuring = measurement.as_ref().is_some_and(|task| !task.is_finished());
            if session.is_held() && !session.has_measured_half_tick() && !is_measuring {
                let measuring = measure_half_tick(Arc::clone(session), Arc::clone(address));
                measurement = Some(background::spawn(measuring));
            }

            match heartbeat(session, address).await {
                Ok(heartbeat) => {
                    liveness.heartbeat(heartbeat, session.half_tick());
                    session.confirm(&liveness);
                }
                // The task of the client library may have panicked. Then nothing else ends this.
                Err(_) if session.has_expired() => return,
                // The client library reconnects.
                Err(_) => sleep(BACKOFF_MIN).await,
            }
        }
    };
    tokio::select! {
        () = heartbeats => {}
        () = session.ended() => {}
    }
}

/// Measures an upper bound of half a tick: it follows from the shortest session that the servers
/// agree to.
///
/// Until the measurement, the bound follows from this session's own timeout. That bound is larger,
/// so the session is confirmed later than necessary. After a failure this pauses, and the next
/// heartbeat of a holder measures again.
async fn measure_half_tick(session: Arc<Session>, address: Arc<Address>) {
    let shortest = session.timeout() * 2 / 5;
    let Ok(Ok(probe)) = timeout(session.timeout(), connect(&address, shortest)).await else {
        tracing::debug!(store = %address, "the length of the servers' ticks cannot be measured");
        let pause = session.timeout() / 10;
        // The pause must not keep a session open whose store has been dropped.
        drop(session);
        sleep(pause).await;
        return;
    };
    session.set_half_tick(liveness::half_tick(probe.session_timeout()));
}

/// Sends a `sync` and then a write that changes nothing.
async fn heartbeat(session: &Session, address: &Address) -> Result<Heartbeat, ZkError> {
    let folder = address.folder();
    let sync_sent = BootInstant::now();
    session.client.sync(folder).await?;

    let write_sent = BootInstant::now();
    let mut writer = session.client.new_multi_writer();
    writer.add_check_version(folder, -1)?;
    match without_panic(writer.commit()).await {
        // A majority also writes a transaction whose check fails.
        Ok(_) | Err(MultiWriteError::OperationFailed { .. }) => Ok(Heartbeat {
            sync_sent,
            write_sent,
            write_replied: BootInstant::now(),
        }),
        Err(MultiWriteError::RequestFailed { source }) => Err(source),
    }
}

fn closed() -> Error {
    Error::unavailable("the store was closed")
}

const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// How long one server has to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
