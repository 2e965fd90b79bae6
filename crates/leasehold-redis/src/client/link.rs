//! A connection that is re-established whenever it breaks, until its store is closed.

mod supervisor;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime::{self, Handle};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::endpoint::Endpoint;
use super::reply_error;
use super::session::{PushHandler, Session};
use super::watched::{CloseOnDrop, Watched};
use leasehold_core::internal::background::{self, caller_runtime};
use leasehold_core::{Error, Result};
use supervisor::supervise;

/// The result of a handshake: the id of the server's history, if its scripts can detect a missing
/// connection.
pub(crate) type Handshake = Option<Arc<str>>;
/// Performs the handshake of a new session, and repeats it from time to time.
pub(crate) type DoHandshake =
    Arc<dyn Fn(Arc<Session>) -> BoxFuture<'static, Result<Handshake>> + Send + Sync>;

/// ```text
/// Connecting ──► Up(1) ──► Down(2) ──► Up(3) ──► …
///      └───────► Down(1) ─┘ ↺
/// ```
/// The number is the epoch. Every change raises it, so that a message of one epoch cannot be taken
/// for one of another.
#[derive(Clone, Debug)]
pub(crate) enum State {
    Connecting,
    Down(u32, Error),
    Up(Arc<Session>, Handshake),
}

impl State {
    pub(crate) fn epoch(&self) -> u32 {
        match self {
            Self::Connecting => 0,
            Self::Down(epoch, _) => *epoch,
            Self::Up(session, _) => session.epoch,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Link {
    states: Watched<State>,
    runtime: Option<runtime::Id>,
    supervisor: AbortHandle,
}

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

pub(crate) struct LinkConfig {
    pub(crate) endpoint: Endpoint,
    pub(crate) channel: String,
    pub(crate) on_push: PushHandler,
    pub(crate) handshake: DoHandshake,
    /// The runtime that drives the connection; `None` for the background thread. The background
    /// thread also takes over at a reconnect, if the runtime has ended or is not polled.
    pub(crate) runtime: Option<Handle>,
    pub(crate) epochs: Epochs,
}

/// The numbers of sessions. Links that share them have no number in common, and a later session of
/// any of them has a larger number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Epochs(Arc<AtomicU32>);

impl Epochs {
    /// Returns the number of the next session; the next number is that of its end.
    fn next(&self) -> u32 {
        self.0.fetch_add(2, Ordering::Relaxed) + 1
    }
}

impl LinkConfig {
    /// A link on the background thread that ignores notifications and has no handshake.
    pub(crate) fn new(endpoint: impl Into<Endpoint>, channel: String) -> Self {
        Self {
            endpoint: endpoint.into(),
            channel,
            on_push: Arc::new(|_, _| {}),
            handshake: Arc::new(|_| Box::pin(async { Ok(None) })),
            runtime: None,
            epochs: Epochs::default(),
        }
    }
}

impl Link {
    pub(crate) fn spawn(config: LinkConfig) -> Self {
        let states = Watched::new(State::Connecting);
        let runtime = config.runtime.as_ref().map(Handle::id);
        let config = Arc::new(config);
        let closing = CloseOnDrop(states.clone());
        let supervisor =
            background::spawn_restarting(move || supervise(Arc::clone(&config), closing.0.clone()));
        Self {
            states,
            runtime,
            supervisor,
        }
    }

    /// Whether the caller's runtime drives this link, so that a request does not switch threads.
    pub(crate) fn is_on_caller_runtime(&self) -> bool {
        self.runtime.is_some() && self.runtime == caller_runtime()
    }

    /// Closes the connection, so that the link connects again with a new handshake.
    #[cold]
    pub(crate) fn reconnect(&self) {
        if let State::Up(session, _) = &*self.states.borrow() {
            session.close();
        }
    }

    /// Calls `read` with the state. It must not block.
    pub(crate) fn with_state<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.states.borrow())
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.states.borrow().epoch()
    }

    pub(crate) fn states(&self) -> Watched<State> {
        self.states.clone()
    }

    /// Returns the session, or the next one within `timeout`; otherwise the reason for its absence.
    ///
    /// It does not wait while the server is a replica, which may last.
    pub(crate) async fn session(&self, timeout: Duration) -> Result<Arc<Session>> {
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
        let found = |state: &State| match state {
            State::Up(session, _) if !session.is_closed() => Some(Ok(Arc::clone(session))),
            State::Down(_, error) if reply_error::shows_replica(error) => Some(Err(error.clone())),
            _ => None,
        };
        match timeout_at(until, self.states.wait_for(found)).await {
            Ok(Ok(found)) => found,
            _ => Err(self.last_error()),
        }
    }

    /// Waits until there has been no session for `timeout`, and returns the reason.
    pub(crate) async fn unreachable(&self, timeout: Duration) -> Error {
        loop {
            let down = |state: &State| matches!(state, State::Down(..)).then_some(());
            if self.states.wait_for(down).await.is_err() {
                return Error::unavailable("the store was closed");
            }
            if let Err(error) = self.session(timeout).await {
                return error;
            }
        }
    }

    /// Waits for the first attempt to connect, and returns its error.
    pub(crate) async fn first(&self) -> Result<()> {
        let first = self.states.wait_for(|state| match state {
            State::Connecting => None,
            State::Up(..) => Some(Ok(())),
            State::Down(_, error) => Some(Err(error.clone())),
        });
        let closed = |_| Err(Error::unavailable("the store was closed"));
        first.await.unwrap_or_else(closed)
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
