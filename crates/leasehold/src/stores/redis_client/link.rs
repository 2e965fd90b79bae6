//! A connection that is re-established whenever it breaks, until its store is closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime::{self, Handle};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::address::Address;
use super::session::{PushHandler, Session};
use crate::runtime::background;
use crate::runtime::caller::caller_runtime;
use crate::{Error, Result};

/// How long one attempt to connect may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// A connection that lasted for less counts as a failed attempt: a proxy may accept it and close it
/// at once.
const STABLE_AFTER: Duration = Duration::from_secs(1);
/// How often the link checks that replies arrive.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// After this many checks without a reply to a request in flight, the connection counts as deaf.
const SILENT_CHECKS_MAX: u32 = 4;
/// After this many checks the handshake is repeated.
const HANDSHAKE_EVERY: u32 = 120;

/// The result of a handshake: the id of the server's history, if its scripts can detect a missing
/// connection.
pub(in crate::stores) type Handshake = Option<Arc<str>>;
/// Performs the handshake of a new session, and repeats it from time to time.
pub(in crate::stores) type DoHandshake =
    Arc<dyn Fn(Arc<Session>) -> BoxFuture<'static, Result<Handshake>> + Send + Sync>;

/// ```text
/// Connecting ──► Up(1) ──► Down(2) ──► Up(3) ──► …
///      └───────► Down(1) ─┘ ↺
/// ```
/// The number is the epoch. Every change raises it, so that a message of one epoch cannot be taken
/// for one of another.
#[derive(Clone, Debug)]
pub(in crate::stores) enum State {
    Connecting,
    Down(u32, Error),
    Up(Arc<Session>, Handshake),
}

impl State {
    pub(in crate::stores) fn epoch(&self) -> u32 {
        match self {
            Self::Connecting => 0,
            Self::Down(epoch, _) => *epoch,
            Self::Up(session, _) => session.epoch,
        }
    }
}

#[derive(Debug)]
pub(in crate::stores) struct Link {
    states: watch::Receiver<State>,
    runtime: Option<runtime::Id>,
    supervisor: AbortHandle,
}

pub(in crate::stores) struct LinkConfig {
    pub(in crate::stores) address: Address,
    pub(in crate::stores) channel: String,
    pub(in crate::stores) on_push: PushHandler,
    pub(in crate::stores) handshake: DoHandshake,
    /// The runtime that drives the connection; `None` for the background thread. The background
    /// thread also takes over at a reconnect, if the runtime has ended or is not polled.
    pub(in crate::stores) runtime: Option<Handle>,
}

impl Link {
    pub(in crate::stores) fn spawn(config: LinkConfig) -> Self {
        let (sender, states) = watch::channel(State::Connecting);
        let runtime = config.runtime.as_ref().map(Handle::id);
        let supervisor = background::handle()
            .spawn(supervise(config, sender))
            .abort_handle();
        Self {
            states,
            runtime,
            supervisor,
        }
    }

    /// Whether the caller's runtime drives this link, so that a request does not switch threads.
    pub(in crate::stores) fn is_on_caller_runtime(&self) -> bool {
        self.runtime.is_some() && self.runtime == caller_runtime()
    }

    /// Calls `read` with the state. It must not block.
    pub(in crate::stores) fn with_state<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.states.borrow())
    }

    pub(in crate::stores) fn epoch(&self) -> u32 {
        self.states.borrow().epoch()
    }

    pub(in crate::stores) fn states(&self) -> watch::Receiver<State> {
        self.states.clone()
    }

    /// Returns the session, or the next one within `timeout`; otherwise the reason for its absence.
    pub(in crate::stores) async fn session(&self, timeout: Duration) -> Result<Arc<Session>> {
        if let State::Up(session, _) = &*self.states.borrow()
            && !session.is_closed()
        {
            return Ok(Arc::clone(session));
        }
        Box::pin(self.wait_for_session(timeout)).await
    }

    #[cold]
    async fn wait_for_session(&self, timeout: Duration) -> Result<Arc<Session>> {
        let until = Instant::now() + timeout;
        let mut states = self.states.clone();
        let up =
            states.wait_for(|state| matches!(state, State::Up(session, _) if !session.is_closed()));
        match timeout_at(until, up).await {
            Ok(Ok(state)) => match &*state {
                State::Up(session, _) => Ok(Arc::clone(session)),
                _ => unreachable!("it was waited for"),
            },
            _ => Err(self.last_error()),
        }
    }

    /// Waits until there has been no session for `timeout`, and returns the reason.
    pub(in crate::stores) async fn unreachable(&self, timeout: Duration) -> Error {
        loop {
            let mut states = self.states.clone();
            if states
                .wait_for(|state| matches!(state, State::Down(..)))
                .await
                .is_err()
            {
                return Error::unavailable("the store was closed");
            }
            if let Err(error) = self.session(timeout).await {
                return error;
            }
        }
    }

    /// Waits for the first attempt to connect, and returns its error.
    pub(in crate::stores) async fn first(&self) -> Result<()> {
        let mut states = self.states.clone();
        let first = states
            .wait_for(|state| !matches!(state, State::Connecting))
            .await;
        match first.as_deref() {
            Ok(State::Up(..)) => Ok(()),
            Ok(State::Down(_, error)) => Err(error.clone()),
            Ok(State::Connecting) | Err(_) => Err(Error::unavailable("the store was closed")),
        }
    }

    fn last_error(&self) -> Error {
        match &*self.states.borrow() {
            State::Down(_, error) => error.clone(),
            State::Connecting | State::Up(..) => Error::unavailable("the server does not reply"),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

/// The pauses between attempts to connect.
///
/// They double, but stay below a twentieth of the crash grace. Without crash detection the lease is
/// the bound, which a link does not know. Then they stay below a twelfth of the time since the last
/// connection broke. So a long pause does not prolong a short outage.
struct ReconnectDelay {
    next: Duration,
    max: Duration,
    grace_is_known: bool,
    broken_at: Instant,
}

impl ReconnectDelay {
    fn new(grace: Option<Duration>) -> Self {
        let max = grace.map_or(BACKOFF_MAX, |grace| BACKOFF_MAX.min(grace / 20));
        Self {
            next: BACKOFF_MIN,
            max,
            grace_is_known: grace.is_some(),
            broken_at: Instant::now(),
        }
    }

    /// Returns the pause after an attempt that failed.
    fn after_failure(&mut self) -> Duration {
        let longest = if self.grace_is_known {
            self.max
        } else {
            self.broken_at.elapsed() / 12
        };
        self.take().min(longest.max(BACKOFF_MIN))
    }

    /// Returns the pause after a connection that was established at `connected_at` and has broken.
    fn after_break(&mut self, connected_at: Instant) -> Duration {
        self.broken_at = Instant::now();
        if connected_at.elapsed() < STABLE_AFTER {
            return self.take();
        }

        self.next = BACKOFF_MIN;
        Duration::ZERO
    }

    fn take(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        pause.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

async fn supervise(config: LinkConfig, states: watch::Sender<State>) {
    let mut delay = ReconnectDelay::new(config.address.settings.crash_grace);
    let mut runtime = config.runtime.clone();
    for epoch in (1u32..).step_by(2) {
        match connect(&config, &mut runtime, epoch).await {
            Ok((session, handshake_result)) => {
                let connected_at = Instant::now();
                states.send_replace(State::Up(Arc::clone(&session), handshake_result.clone()));
                monitor(&config, &session, &handshake_result).await;
                session.close();
                states.send_replace(State::Down(
                    epoch + 1,
                    Error::unavailable("the connection broke"),
                ));
                tokio::time::sleep(delay.after_break(connected_at)).await;
            }
            Err(error) => {
                tracing::debug!(server = %config.address, %error, "cannot connect");
                states.send_replace(State::Down(epoch + 1, error));
                tokio::time::sleep(delay.after_failure()).await;
            }
        }
    }
}

async fn connect(
    config: &LinkConfig,
    runtime: &mut Option<Handle>,
    epoch: u32,
) -> Result<(Arc<Session>, Handshake)> {
    let address = config.address.clone();
    let channel = config.channel.clone();
    let on_push = Arc::clone(&config.on_push);
    let begun = Arc::new(AtomicBool::new(false));
    let begins = Arc::clone(&begun);
    let opening = async move {
        begins.store(true, Ordering::Release);
        Session::open(&address, &channel, epoch, on_push).await
    };
    let handshaken = async {
        let at = runtime.as_ref().unwrap_or_else(|| background::handle());
        let Ok(opened) = at.spawn(opening).await else {
            // From now on the background thread drives the connection.
            *runtime = None;
            return Err(Error::unavailable(
                "the runtime that drove the connection has ended",
            ));
        };
        let session = Arc::new(opened?);
        let handshake_result = (config.handshake)(Arc::clone(&session)).await?;
        Ok((session, handshake_result))
    };
    if let Ok(connected) = timeout(CONNECT_MAX, handshaken).await {
        return connected;
    }
    if begun.load(Ordering::Acquire) {
        return Err(Error::unavailable(format!(
            "the server did not answer within {CONNECT_MAX:?}"
        )));
    }
    *runtime = None;
    Err(Error::unavailable(
        "the runtime that drove the connection is not polled",
    ))
}

/// Returns when the session has ended or is deaf, or the server has changed.
///
/// One timer serves all requests: a timer for each would take as long as the request.
async fn monitor(config: &LinkConfig, session: &Arc<Session>, handshake_result: &Handshake) {
    let mut silent = 0;
    let mut received = 0;
    for check in 1u32.. {
        if timeout(POLL_INTERVAL, session.closed_signal())
            .await
            .is_ok()
        {
            return;
        }
        let (in_flight, now_received) = session.progress();
        silent = if in_flight && now_received == received {
            silent + 1
        } else {
            0
        };
        received = now_received;
        let deaf = silent >= SILENT_CHECKS_MAX;
        if deaf
            || check % HANDSHAKE_EVERY == 0
                && !is_same_server(config, session, handshake_result).await
        {
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

    /// Returns the moment `past` ago.
    fn ago(past: Duration) -> Instant {
        Instant::now()
            .checked_sub(past)
            .expect("the clock has run for a while")
    }

    #[test]
    fn reconnect_pauses_stay_below_a_twentieth_of_the_grace() {
        let mut delay = ReconnectDelay::new(Some(Duration::from_secs(4)));
        let pauses: Vec<Duration> = (0..20).map(|_| delay.after_failure()).collect();
        assert!(
            pauses
                .iter()
                .all(|pause| *pause <= Duration::from_millis(200)),
            "{pauses:?}"
        );
        assert!(
            pauses[10] >= Duration::from_millis(100),
            "they grow: {pauses:?}"
        );
    }

    #[test]
    fn reconnect_pauses_follow_the_outage_where_no_grace_is_known() {
        let mut delay = ReconnectDelay::new(None);
        delay.next = BACKOFF_MAX;
        delay.broken_at = ago(Duration::from_millis(600));
        assert!(delay.after_failure() < Duration::from_millis(100));
        delay.broken_at = ago(Duration::from_secs(60));
        assert!(delay.after_failure() >= BACKOFF_MAX / 2);
    }

    #[test]
    fn short_lived_connection_counts_as_a_failed_attempt() {
        let mut delay = ReconnectDelay::new(Some(Duration::from_secs(10)));
        let pauses: Vec<Duration> = (0..10).map(|_| delay.after_break(Instant::now())).collect();
        assert!(
            pauses[0] <= BACKOFF_MIN && pauses[9] >= Duration::from_millis(250),
            "{pauses:?}"
        );
        assert_eq!(
            delay.after_break(ago(STABLE_AFTER)),
            Duration::ZERO,
            "one that lived is made again at once"
        );
    }
}
