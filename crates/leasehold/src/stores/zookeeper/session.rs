//! The session that keeps our nodes, and a new one whenever it has ended.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use zookeeper_client::{Client, Error as ZkError, MultiWriteError};

use super::address::Address;
use super::liveness::{self, Beat, Liveness};
use super::{reply_error, tls};
use crate::runtime::background;
use crate::runtime::clock::BootInstant;
use crate::{Error, Result};

/// One session. Its ephemeral nodes live as long as it does.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client: Client,
    /// Until when it certainly lives, in nanoseconds of the clock.
    until: AtomicU64,
    confirmed: Notify,
    /// Whether a claim of it has been granted.
    has_held: AtomicBool,
    /// Until when it is confirmed at the short pauses of a holder, in nanoseconds of the clock.
    held_until: AtomicU64,
    held: Notify,
    /// At least half a tick of the servers, in nanoseconds; 0 until it has been found out.
    half_tick: AtomicU64,
    /// Whether a server was caught showing what the others do not have.
    is_abandoned: AtomicBool,
    abandoned: Notify,
}

impl Session {
    fn new(client: Client, liveness: &Liveness) -> Self {
        let session = Self {
            client,
            until: AtomicU64::default(),
            confirmed: Notify::default(),
            has_held: AtomicBool::default(),
            held_until: AtomicU64::default(),
            held: Notify::default(),
            half_tick: AtomicU64::default(),
            is_abandoned: AtomicBool::default(),
            abandoned: Notify::default(),
        };
        session.confirm_until(liveness);
        session
    }

    pub(super) fn id(&self) -> i64 {
        self.client.session_id().0
    }

    /// What the servers have agreed to.
    pub(super) fn timeout(&self) -> Duration {
        self.client.session_timeout()
    }

    /// For how long, counted from a moment, it certainly lives; an error if it may be over.
    pub(super) fn remaining(&self, from: BootInstant) -> Result<Duration> {
        let remaining =
            BootInstant::from_nanos(self.until.load(Ordering::Acquire)).duration_since(from);
        if !remaining.is_zero() {
            return Ok(remaining);
        }
        Err(unconfirmed())
    }

    /// Waits until it is certain that it lives for a while, or over. Mostly it is: after a silence it takes a beat or two.
    pub(super) async fn confirmed(&self) {
        loop {
            let confirmed = self.confirmed.notified();
            if self.is_over() || self.is_confirmed() {
                return;
            }
            tokio::select! {
                () = confirmed => {}
                () = self.ended() => {}
            }
        }
    }

    /// Takes note that a claim is held: from now on the session is confirmed more often, for as long as it is renewed.
    pub(super) fn note_holder(&self) {
        self.has_held.store(true, Ordering::Release);
        let before = self
            .held_until
            .swap(self.held_for().as_nanos(), Ordering::AcqRel);
        if before <= BootInstant::now().as_nanos() {
            self.held.notify_one();
        }
    }

    /// For a holder that renews: goes on confirming the session often, and waits for the next confirmation, but not for
    /// much longer than it usually takes. So a hold is valid for as long as the session is, not for as long as it was.
    /// After an outage the hold needs what has been confirmed at once.
    pub(super) async fn next_confirmation(&self) {
        if !self.has_held.load(Ordering::Acquire) {
            return;
        }

        let confirmed = self.confirmed.notified();
        self.note_holder();
        if self
            .remaining(BootInstant::now())
            .is_ok_and(|remaining| remaining >= self.timeout() / 2)
        {
            // Without one the session is valid for as long as the last one says.
            let _ = timeout(self.timeout() / 12, confirmed).await;
        }
    }

    /// Holders renew every tenth of a session or sooner.
    fn held_for(&self) -> BootInstant {
        BootInstant::now().saturating_add(self.timeout() / 8)
    }

    fn is_held(&self) -> bool {
        BootInstant::now().as_nanos() < self.held_until.load(Ordering::Acquire)
    }

    /// Waits until the beat after the last one of `liveness` is due.
    async fn next_beat(&self, liveness: &Liveness) {
        loop {
            let due = liveness
                .next_heartbeat(liveness::heartbeat_interval(self.timeout(), self.is_held()));
            tokio::select! {
                () = sleep(due.duration_since(BootInstant::now())) => return,
                () = self.held.notified() => {}
            }
        }
    }

    fn half_tick(&self) -> Duration {
        match self.half_tick.load(Ordering::Acquire) {
            0 => liveness::half_tick(self.timeout()),
            nanos => Duration::from_nanos(nanos).min(liveness::half_tick(self.timeout())),
        }
    }

    fn is_confirmed(&self) -> bool {
        self.remaining(BootInstant::now())
            .is_ok_and(|remaining| remaining >= self.timeout() / 4)
    }

    /// Whether the servers have ended it, or this client has.
    pub(super) fn is_over(&self) -> bool {
        self.is_abandoned.load(Ordering::Acquire) || self.client.state().is_terminated()
    }

    /// Waits until it is over.
    pub(super) async fn ended(&self) {
        let mut states = self.client.state_watcher();
        loop {
            let abandoned = self.abandoned.notified();
            if self.is_over() {
                return;
            }
            tokio::select! {
                () = abandoned => {}
                _ = states.changed() => {}
            }
        }
    }

    /// Uses it no more, as the server it is connected to shows what the others do not have. The servers keep it, with all its
    /// nodes, until the last of those who had something in it has heard so; they end it then, and that server forgets too.
    pub(super) fn abandon(&self) -> Error {
        tracing::warn!(
            "a server shows nodes that the others do not have: its session is given up, and all locks in it"
        );
        self.is_abandoned.store(true, Ordering::Release);
        self.abandoned.notify_waiters();
        Error::unavailable("a server shows nodes that the others do not have")
            .help("its data are damaged: stop it, empty its data folder, and start it again")
    }

    fn confirm_until(&self, liveness: &Liveness) {
        // Less what two clocks may differ in rate (500 ppm): the engine takes off its share of what is left, not of the whole.
        let certain = self.timeout().saturating_sub(self.timeout() / 2_000);
        self.until.store(
            liveness.valid_from().saturating_add(certain).as_nanos(),
            Ordering::Release,
        );
        self.confirmed.notify_waiters();
    }
}

/// Whether there is a session.
#[derive(Clone, Debug)]
enum State {
    Missing(Option<Error>),
    Connected(Arc<Session>),
}

/// Sees to it that there is a session for as long as this lives.
#[derive(Debug)]
pub(super) struct SessionSupervisor {
    states: watch::Receiver<State>,
    task: AbortHandle,
}

impl SessionSupervisor {
    pub(super) fn start(address: Arc<Address>) -> Self {
        let (publish, states) = watch::channel(State::Missing(None));
        let keeping = background::handle()
            .spawn(supervise(address, publish))
            .abort_handle();
        Self {
            states,
            task: keeping,
        }
    }

    /// The first session, or why there is none.
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

    /// The session there is, waiting for one if need be.
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

    /// A session that certainly lives, waiting for it if need be.
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

    /// The session there is now.
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

fn unconfirmed() -> Error {
    Error::unavailable("the servers have not confirmed the session for its timeout")
}

fn closed() -> Error {
    Error::unavailable("the store was closed")
}

const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// One session after the other.
async fn supervise(address: Arc<Address>, publish: watch::Sender<State>) {
    let mut pause = BACKOFF_MIN;
    loop {
        let sent_at = BootInstant::now();
        match connect(&address, address.settings.session).await {
            Ok(client) => {
                pause = BACKOFF_MIN;
                warn_of_cap(&address, &client);
                let liveness = Liveness::started(sent_at, BootInstant::now());
                let session = Arc::new(Session::new(client, &liveness));
                let _ = publish.send(State::Connected(Arc::clone(&session)));
                heartbeat_loop(&session, &address, liveness).await;
                let _ = publish.send(State::Missing(Some(Error::unavailable(
                    "the session has ended",
                ))));
            }
            Err(error) => {
                // Whoever asks meanwhile is told why there is none.
                let _ = publish.send(State::Missing(Some(error)));
                sleep(pause).await;
                pause = (pause * 2).min(BACKOFF_MAX);
            }
        }
    }
}

async fn connect(address: &Address, session: Duration) -> Result<Client> {
    let mut connector = Client::connector()
        .with_session_timeout(session)
        .with_fail_eagerly();
    if let Some(digest) = &address.digest {
        connector = connector.with_auth("digest", digest.as_bytes());
    }
    if let Some(tls) = &address.tls {
        connector = tls::encrypted(connector, &address.servers, tls)?;
    }
    match (connector.connect(&address.cluster()).await, &address.tls) {
        (Err(error), Some(tls)) => Err(tls::refusal(&address.servers, tls)
            .await
            .unwrap_or_else(|| reply_error::store_error(error))),
        (connected, _) => connected.map_err(reply_error::store_error),
    }
}

fn warn_of_cap(address: &Address, client: &Client) {
    let (sent, given) = (address.settings.session, client.session_timeout());
    if sent != given {
        tracing::warn!(store = %address, ?sent, ?given, "the servers agree to another session timeout than was asked for");
    }
}

/// Until the session is over.
async fn heartbeat_loop(session: &Arc<Session>, address: &Arc<Address>, mut liveness: Liveness) {
    let mut asks_for_tick = true;
    let heartbeats = async {
        loop {
            session.next_beat(&liveness).await;
            if asks_for_tick && session.is_held() {
                asks_for_tick = false;
                background::handle()
                    .spawn(find_half_tick(Arc::clone(session), Arc::clone(address)));
            }
            match heartbeat(session, address).await {
                Ok(heartbeat) => {
                    liveness.heartbeat(heartbeat, session.half_tick());
                    session.confirm_until(&liveness);
                }
                // It is connecting again, or soon will be.
                Err(_) => sleep(BACKOFF_MIN).await,
            }
        }
    };
    tokio::select! {
        () = heartbeats => {}
        () = session.ended() => {}
    }
}

/// Finds out how long half a tick lasts at most, by the shortest session that the servers agree to. Until then it is taken
/// for as long as this session would allow, which proves the session later than it could.
async fn find_half_tick(session: Arc<Session>, address: Arc<Address>) {
    let shortest = session.timeout() * 2 / 5;
    let Ok(Ok(probe)) = timeout(session.timeout(), connect(&address, shortest)).await else {
        tracing::debug!(store = %address, "cannot find out how long the servers' ticks are");
        return;
    };

    let half_tick = liveness::half_tick(probe.session_timeout());
    session.half_tick.store(
        u64::try_from(half_tick.as_nanos()).unwrap_or(u64::MAX),
        Ordering::Release,
    );
}

/// A `sync` and then a write that changes nothing.
async fn heartbeat(session: &Session, address: &Address) -> Result<Beat, ZkError> {
    let folder = if address.base.is_empty() {
        "/"
    } else {
        &address.base
    };
    let begun = BootInstant::now();
    session.client.sync(folder).await?;
    let sent_at = BootInstant::now();
    let mut writer = session.client.new_multi_writer();
    writer.add_check_version(folder, -1)?;
    match writer.commit().await {
        // A check that fails is written by a majority as well.
        Ok(_) | Err(MultiWriteError::OperationFailed { .. }) => Ok(Beat {
            begun,
            asked: sent_at,
            answered: BootInstant::now(),
        }),
        Err(MultiWriteError::RequestFailed { source }) => Err(source),
    }
}
