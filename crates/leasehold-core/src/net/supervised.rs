//! A session that is opened again whenever it ends, until its store is closed.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::runtime;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};

use super::pauses::Pauses;
use super::watched::{CloseOnDrop, Watched};
use crate::runtime::background::{self, caller_runtime};
use crate::{Error, Result, metrics};

/// One connection, or one session of a service. It ends, and is not opened again.
pub trait Session: Debug + Send + Sync + 'static {
    /// What the checks of an opened session found.
    type Checked: Clone + Debug + Send + 'static;

    /// The name of the service in metrics.
    const SERVICE: &'static str;
    /// The error of a session that has ended.
    const ENDED: &'static str;
    /// The error if there is no session, and no attempt has failed.
    const ABSENT: &'static str;

    fn epoch(&self) -> u32;

    fn is_closed(&self) -> bool;

    /// Ends the session. It must not block.
    fn close(&self);

    /// Whether the cause of an error usually outlasts the time for which a request can wait.
    fn outlasts_requests(error: &Error) -> bool;
}

/// Opens the sessions of a [`Supervised`].
pub trait Connect<S: Session>: Clone + Send + Sync + 'static {
    fn attempts(&self) -> Attempts;

    /// Opens a session and checks it, publishes it by [`Up::publish`], and returns when it has
    /// ended. Opening and checking are one step, so that their requests can be sent together.
    ///
    /// # Errors
    /// The reason why no session was published, in bounded time; or why the session has ended, if
    /// that is not [`Session::ENDED`].
    ///
    /// # Cancel safety
    /// Dropping the future ends the session.
    fn attempt(&mut self, epoch: u32, up: &mut Up<S>) -> impl Future<Output = Result<()>> + Send;

    /// Returns the time from one attempt to the next, if the error is one after which the usual
    /// pause is wrong.
    fn interval_after(&self, error: &Error) -> Option<Duration>;
}

/// How the sessions of a [`Supervised`] follow each other.
#[derive(Clone, Debug)]
pub struct Attempts {
    pub pauses: Pauses,
    pub epochs: Epochs,
    /// The runtime that drives the connections; `None` for the background thread.
    pub runtime: Option<runtime::Id>,
}

/// Those of a store with one session, which the background thread drives.
impl From<Pauses> for Attempts {
    fn from(pauses: Pauses) -> Self {
        Self {
            pauses,
            epochs: Epochs::default(),
            runtime: None,
        }
    }
}

/// ```text
/// Connecting ──► Up(1) ──► Down(2) ──► Up(3) ──► …
///      └───────► Down(1) ─┘ ↺
/// ```
/// The number is the epoch. Every change raises it, so that a message of one epoch cannot be taken
/// for one of another.
#[derive(Clone, Debug)]
pub enum State<S: Session> {
    Connecting,
    Down(u32, Error),
    Up(Arc<S>, S::Checked),
}

impl<S: Session> State<S> {
    pub fn epoch(&self) -> u32 {
        match self {
            Self::Connecting => 0,
            Self::Down(epoch, _) => *epoch,
            Self::Up(session, _) => session.epoch(),
        }
    }

    /// Returns the session, unless it has ended.
    fn open_session(&self) -> Option<&Arc<S>> {
        match self {
            Self::Up(session, _) if !session.is_closed() => Some(session),
            _ => None,
        }
    }
}

/// The numbers of sessions. Supervisors that share them have no number in common, and a later
/// session of any of them has a larger number.
#[derive(Clone, Debug, Default)]
pub struct Epochs(Arc<AtomicU32>);

impl Epochs {
    /// Returns the number of the next session; the next number is that of its end.
    fn next(&self) -> u32 {
        self.0.fetch_add(2, Ordering::Relaxed) + 1
    }
}

/// A session of a store, or the reason why there is none.
#[derive(Debug)]
pub struct Supervised<S: Session> {
    states: Watched<State<S>>,
    runtime: Option<runtime::Id>,
    supervisor: AbortHandle,
}

impl<S: Session> Supervised<S> {
    /// Starts the task that opens sessions. The background thread must have been started.
    pub fn spawn(service: impl Connect<S>) -> Self {
        let states = Watched::new(State::Connecting);
        let attempts = service.attempts();
        let runtime = attempts.runtime;
        let closing = CloseOnDrop(states.clone());
        let supervisor = background::spawn_restarting(move || {
            supervise(service.clone(), attempts.clone(), closing.0.clone())
        });
        Self {
            states,
            runtime,
            supervisor,
        }
    }

    /// Whether the caller's runtime drives the session, so that a request does not switch threads.
    pub fn is_on_caller_runtime(&self) -> bool {
        self.runtime.is_some() && self.runtime == caller_runtime()
    }

    /// Closes the session, so that a new one is opened and checked.
    #[cold]
    pub fn reconnect(&self) {
        if let State::Up(session, _) = &*self.states.borrow() {
            session.close();
        }
    }

    /// Calls `read` with the state. It must not block.
    pub fn with_state<T>(&self, read: impl FnOnce(&State<S>) -> T) -> T {
        read(&self.states.borrow())
    }

    pub fn epoch(&self) -> u32 {
        self.states.borrow().epoch()
    }

    pub fn states(&self) -> Watched<State<S>> {
        self.states.clone()
    }

    /// Returns the present session, if it is open.
    pub fn current(&self) -> Option<Arc<S>> {
        self.states.borrow().open_session().cloned()
    }

    /// Returns the session, or the next one within `timeout`; otherwise the reason for its absence.
    ///
    /// It does not wait while the last error [outlasts requests](Session::outlasts_requests).
    pub async fn session(&self, timeout: Duration) -> Result<Arc<S>> {
        if let Some(session) = self.current() {
            return Ok(session);
        }
        Box::pin(self.wait_for_session(timeout)).await
    }

    #[cold]
    async fn wait_for_session(&self, timeout: Duration) -> Result<Arc<S>> {
        let until = Instant::now() + timeout;
        let found = |state: &State<S>| match state {
            State::Down(_, error) if S::outlasts_requests(error) => Some(Err(error.clone())),
            state => state.open_session().cloned().map(Ok),
        };
        match timeout_at(until, self.states.wait_for(found)).await {
            Ok(Ok(found)) => found,
            _ => Err(self.last_error()),
        }
    }

    /// Waits until there has been no session for `timeout`, and returns the reason.
    pub async fn unreachable(&self, timeout: Duration) -> Error {
        loop {
            let down = |state: &State<S>| matches!(state, State::Down(..)).then_some(());
            if self.states.wait_for(down).await.is_err() {
                return store_closed();
            }
            if let Err(error) = self.session(timeout).await {
                return error;
            }
        }
    }

    /// Waits for the first attempt to connect, and returns its error.
    pub async fn first(&self) -> Result<()> {
        let first = self.states.wait_for(|state| match state {
            State::Connecting => None,
            State::Up(..) => Some(Ok(())),
            State::Down(_, error) => Some(Err(error.clone())),
        });
        first.await.unwrap_or_else(|_| Err(store_closed()))
    }

    fn last_error(&self) -> Error {
        match &*self.states.borrow() {
            State::Down(_, error) => error.clone(),
            State::Connecting | State::Up(..) => Error::unavailable(S::ABSENT),
        }
    }
}

impl<S: Session> Drop for Supervised<S> {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

/// Returns the error of a call that the end of its store has interrupted.
#[must_use]
pub fn store_closed() -> Error {
    Error::unavailable("the store was closed")
}

/// Publishes the sessions of a [`Supervised`].
#[derive(Debug)]
pub struct Up<S: Session> {
    states: Watched<State<S>>,
    /// Since when the session of this attempt exists.
    since: Option<Instant>,
    had_session: bool,
}

impl<S: Session> Up<S> {
    /// Publishes a session that was opened and checked.
    pub fn publish(&mut self, session: &Arc<S>, checked: &S::Checked) {
        self.since = Some(Instant::now());
        if self.had_session {
            metrics::reconnected(S::SERVICE);
        }
        self.had_session = true;
        let state = State::Up(Arc::clone(session), checked.clone());
        self.states.set(state);
    }
}

/// Opens one session after another, and publishes the state.
///
/// After a panic it runs again, and first gives up the session that nobody has watched since.
/// Whatever the attempt did for that session has ended with the panic: its heartbeats, if it has
/// any, and the wait for its end. Its connection may be open or not. Until another attempt has
/// succeeded, the state would still show the session as open, and requests would be sent to it,
/// although nothing keeps it alive. Its end has the next epoch, as every end has, so that a waiter
/// that named this session notices the change.
async fn supervise<S: Session>(
    mut service: impl Connect<S>,
    mut attempts: Attempts,
    states: Watched<State<S>>,
) {
    if matches!(&*states.borrow(), State::Up(..)) {
        end(&states, Error::unavailable(S::ENDED));
    }
    let mut up = Up {
        states: states.clone(),
        since: None,
        had_session: false,
    };
    let mut ended_at = Instant::now();

    loop {
        let epoch = attempts.epochs.next();
        let begun = Instant::now();
        let outcome = service.attempt(epoch, &mut up).await;
        let since = up.since.take();
        let pauses = &mut attempts.pauses;
        let usual = match since {
            Some(since) => pauses.after_end(since.elapsed()),
            None => pauses.after_failure(ended_at.elapsed()),
        };

        let ended = Error::unavailable(S::ENDED);
        let error = outcome.err().unwrap_or(ended);
        let interval = service.interval_after(&error);
        let pause = interval.map_or(usual, |interval| interval.saturating_sub(begun.elapsed()));
        if since.is_some() {
            end(&states, error);
            ended_at = Instant::now();
        } else {
            states.set(State::Down(epoch + 1, error));
        }
        sleep(pause).await;
    }
}

/// Closes the session and publishes its end.
fn end<S: Session>(states: &Watched<State<S>>, error: Error) {
    let epoch = states.borrow().epoch();
    if let State::Up(session, _) = &*states.borrow() {
        session.close();
    }
    states.set(State::Down(epoch + 1, error));
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    #[derive(Debug)]
    struct Connection {
        epoch: u32,
        life: Watched<()>,
    }

    impl Session for Connection {
        type Checked = ();

        const SERVICE: &'static str = "test";
        const ENDED: &'static str = "the connection ended";
        const ABSENT: &'static str = "there is no connection";

        fn epoch(&self) -> u32 {
            self.epoch
        }

        fn is_closed(&self) -> bool {
            self.life.is_closed()
        }

        fn close(&self) {
            self.life.close();
        }

        fn outlasts_requests(_error: &Error) -> bool {
            false
        }
    }

    /// A service that refuses the first connections.
    #[derive(Clone)]
    struct Service {
        refusals: Arc<Mutex<u32>>,
    }

    impl Connect<Connection> for Service {
        fn attempts(&self) -> Attempts {
            let millisecond = Duration::from_millis(1);
            Pauses::between(millisecond, millisecond, || 1.0).into()
        }

        async fn attempt(&mut self, epoch: u32, up: &mut Up<Connection>) -> Result<()> {
            let left = *self.refusals.lock();
            if left > 0 {
                *self.refusals.lock() = left - 1;
                return Err(Error::unavailable("the connection was refused"));
            }
            let connection = Arc::new(Connection {
                epoch,
                life: Watched::new(()),
            });
            up.publish(&connection, &());
            connection.life.closed().await;
            Ok(())
        }

        fn interval_after(&self, _error: &Error) -> Option<Duration> {
            None
        }
    }

    fn supervised(refusals: u32) -> Supervised<Connection> {
        supervised_by(&Arc::new(Mutex::new(refusals)))
    }

    fn supervised_by(refusals: &Arc<Mutex<u32>>) -> Supervised<Connection> {
        background::start().expect("a thread");
        Supervised::spawn(Service {
            refusals: Arc::clone(refusals),
        })
    }

    fn wait_for<T>(future: impl Future<Output = T>) -> T {
        background::block_on(background::on_background(future))
    }

    #[test]
    fn session_that_ends_is_followed_by_one_of_a_later_epoch() {
        let supervised = supervised(0);
        wait_for(async {
            supervised.first().await.expect("it is accepted");
            let first = supervised.session(LIMIT).await.expect("it is open");
            supervised.reconnect();

            let second = supervised.session(LIMIT).await.expect("a new one");
            assert!(first.is_closed() && !second.is_closed());
            // The number between them is that of the end.
            assert_eq!(second.epoch, first.epoch + 2);
        });
    }

    #[test]
    fn absence_is_explained_by_the_last_attempt_until_one_succeeds() {
        let refusals = Arc::new(Mutex::new(u32::MAX));
        let accepted_later = supervised_by(&refusals);
        wait_for(async {
            let error = accepted_later.first().await.expect_err("it is refused");
            assert_eq!(error.reason(), "the connection was refused");
            *refusals.lock() = 0;
            let accepted = accepted_later.session(LIMIT).await;
            accepted.expect("it is accepted");
        });
        let refused = supervised(u32::MAX);
        wait_for(async {
            let error = refused.unreachable(Duration::from_millis(20)).await;
            assert_eq!(error.reason(), "the connection was refused");
        });
    }

    #[test]
    fn drop_ends_the_waits() {
        let supervised = supervised(u32::MAX);
        let states = supervised.states();
        drop(supervised);
        wait_for(states.closed());
    }
}
