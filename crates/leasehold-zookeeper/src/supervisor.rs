//! How sessions are opened and kept: a session gets heartbeats until it ends.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use zookeeper_client::{Client, Error as ZkError, MultiWriteError};

use super::address::Address;
use super::liveness::{self, Heartbeat, Liveness};
use super::reply_error::{store_error, without_panic};
use super::session::{Session, unconfirmed};
use super::tls;
use leasehold_core::internal::background::BlockingSteps;
use leasehold_core::internal::net::{
    self, Attempts, Connect, Connector, Help, Pauses, Supervised, Up,
};
use leasehold_core::internal::{self, BootInstant, background};
use leasehold_core::{Error, Result};

pub(super) type SessionSupervisor = Supervised<Session>;

/// The sessions that a store opens, one after another.
#[derive(Clone, Debug)]
pub(super) struct Sessions {
    address: Arc<Address>,
    /// The steps that read the files of TLS.
    tls_files: BlockingSteps,
}

impl Sessions {
    pub(super) fn of(address: Arc<Address>) -> Self {
        Self {
            address,
            tls_files: BlockingSteps::default(),
        }
    }

    /// Opens a session.
    pub(super) async fn connect(&self, session: Duration) -> Result<Client> {
        let address = &self.address;
        let mut connector = Client::connector()
            .with_session_timeout(session)
            .with_fail_eagerly();
        if let Some(login) = address.digest().await? {
            connector = connector.with_auth("digest", login.as_bytes());
        }
        if let Some(tls) = address.tls.clone() {
            let servers = address.servers.clone();
            let encrypting = move || tls::encrypted(connector, &servers, &tls);
            let encrypted = self
                .tls_files
                .run("the TLS files (ca=, cert=, key=)", encrypting);
            connector = encrypted.await??;
        }

        match (connector.connect(&address.cluster()).await, &address.tls) {
            (Err(error), Some(tls)) => {
                let refusal = Connector::new(&HELP).refusal(&address.servers, tls).await;
                Err(refusal.unwrap_or_else(|| store_error(error)))
            }
            (Err(error @ (ZkError::NoHosts | ZkError::Timeout)), None) => {
                let reasons = net::no_server(&address.servers, NO_SESSION).await;
                Err(reasons.caused_by(error))
            }
            (connected, _) => connected.map_err(store_error),
        }
    }
}

impl Connect<Session> for Sessions {
    fn attempts(&self) -> Attempts {
        Pauses::between(BACKOFF_MIN, BACKOFF_MAX, || 1.0).into()
    }

    async fn attempt(&mut self, epoch: u32, up: &mut Up<Session>) -> Result<()> {
        let address = &self.address;
        let sent_at = BootInstant::now();
        // The client library resolves names on threads of tokio, which panics without one.
        let connecting = self.connect(address.settings.session);
        let client = internal::without_panic(connecting).await?;
        warn_of_other_timeout(address, &client);

        let liveness = Liveness::started(sent_at, BootInstant::now());
        let session = Arc::new(Session::new(epoch, client, &liveness));
        up.publish(&session, &());
        keep_alive(&session, self, liveness).await;
        Ok(())
    }

    fn interval_after(&self, _error: &Error) -> Option<Duration> {
        None
    }
}

/// Returns a session that certainly exists for some more time, waiting up to `limit` for one.
pub(super) async fn confirmed_session(
    supervisor: &SessionSupervisor,
    limit: Duration,
) -> Result<Arc<Session>> {
    let confirmed = async {
        loop {
            let session = supervisor.session(limit).await?;
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

static HELP: Help = Help {
    plain_scheme: "zookeeper://",
    server_name: "",
    socket: "",
};
const NO_SESSION: &str = "it accepts connections, but no session; is it in a quorum, and is its \
     maxClientCnxns reached?";

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
async fn keep_alive(session: &Arc<Session>, sessions: &Sessions, mut liveness: Liveness) {
    let mut measurement: Option<AbortHandle> = None;
    let heartbeats = async {
        loop {
            session.next_heartbeat(&liveness).await;
            let is_measuring = measurement.as_ref().is_some_and(|task| !task.is_finished());
            if session.is_held() && !session.has_measured_half_tick() && !is_measuring {
                let measuring = measure_half_tick(Arc::clone(session), sessions.clone());
                measurement = Some(background::spawn(measuring));
            }

            match heartbeat(session, &sessions.address).await {
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
/// agree to, if that has two ticks or more. A session of five ticks or more needs no such minimum.
///
/// Until the measurement, the bound follows from this session's own timeout. That bound is larger,
/// so the session is confirmed later than necessary. After a failure this pauses, and the next
/// heartbeat of a holder measures again.
async fn measure_half_tick(session: Arc<Session>, sessions: Sessions) {
    let shortest = session.timeout() * 2 / 5;
    let Ok(Ok(probe)) = timeout(session.timeout(), sessions.connect(shortest)).await else {
        tracing::debug!(store = %sessions.address, "the length of the servers' ticks cannot be measured");
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

const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(2);
