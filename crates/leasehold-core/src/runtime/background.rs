//! The one background thread of a process, and the runtime of the caller.
//!
//! Renewals, departures and the file store's inbox run on it. So no lock is lost and no entry is
//! left behind if the user's runtime is busy, stopped or absent.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::os::unix::net::UnixStream;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, mpsc};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use tokio::runtime::{Builder, Handle, Id};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{AbortHandle, JoinError};
use tokio::time::timeout;

use super::backoff::Backoff;
use super::departures::{Departure, wait_at_end_of_thread};
use super::fork::{check_not_forked, is_forked, thread_starts};
use super::simulation;
use crate::{Error, Result};

/// Starts the thread on first use.
///
/// # Errors
/// [`is_unavailable`](Error::is_unavailable) if the system has no thread or descriptor left, and
/// [`is_invalid`](Error::is_invalid) in a forked process.
pub fn start() -> Result<&'static Handle> {
    static STARTING: Mutex<()> = Mutex::new(());
    check_not_forked()?;
    wait_at_end_of_thread();
    let _starting = STARTING.lock();

    if BACKGROUND.get().is_none() {
        let runtime = spawn_thread()
            .map_err(|error| Error::exhausted(error, "the background thread cannot be started"))?;
        thread_starts();
        let started = BACKGROUND.set(Background { runtime });
        started.expect("the mutex admits one thread");
    }
    Ok(handle())
}

/// Returns the runtime of the background thread, for code that runs after [`start`].
pub(crate) fn handle() -> &'static Handle {
    let background = BACKGROUND.get();
    &background
        .expect("opening a store starts the background thread")
        .runtime
}

/// Spawns a task on the background thread.
pub fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    spawn_on(None, task)
}

/// Spawns a task on a runtime, or on the background thread.
pub fn spawn_on(
    runtime: Option<&Handle>,
    task: impl Future<Output = ()> + Send + 'static,
) -> AbortHandle {
    match simulation::spawn(task) {
        Ok(task) => task,
        Err(task) => {
            let runtime = runtime.unwrap_or_else(|| handle());
            runtime.spawn(task).abort_handle()
        }
    }
}

/// Spawns a task on the background thread that begins anew after a panic: one of a layer of
/// `tracing`, a recorder of metrics or a store of the program must not end it for good.
///
/// The panic is reported by the panic hook. In a simulated world it ends the test.
pub fn spawn_restarting<F>(task: impl Fn() -> F + Send + 'static) -> AbortHandle
where
    F: Future<Output = ()> + Send + 'static,
{
    if simulation::is_active() {
        return spawn(async move { task().await });
    }
    spawn(async move {
        let mut backoff = Backoff::default();
        let mut begun = Instant::now();
        while AssertUnwindSafe(task()).catch_unwind().await.is_err() {
            if begun.elapsed() > RESTARTS_APART {
                backoff.reset();
            }
            backoff.wait().await;
            begun = Instant::now();
        }
    })
}

/// Panics of a task that are further apart do not belong together, and the next pause is short.
const RESTARTS_APART: Duration = Duration::from_secs(10);

/// Waits for a reply. A panic, such as one of the program's layer of `tracing`, counts as none.
pub async fn without_panic<T>(reply: impl Future<Output = Result<T>>) -> Result<T> {
    let reply = AssertUnwindSafe(reply).catch_unwind().await;
    reply.unwrap_or_else(|_| Err(Error::unavailable("the request has panicked")))
}

/// Runs a future on a runtime, or on the background thread, and waits for its end.
///
/// # Errors
/// If the runtime ends before the future does.
///
/// # Cancel safety
/// Dropping the future drops the one that it runs, when the runtime is next polled.
pub async fn run_on<F>(
    runtime: Option<&Handle>,
    future: F,
) -> std::result::Result<F::Output, JoinError>
where
    F: Future<Output: Send> + Send + 'static,
{
    if simulation::is_active() {
        return Ok(future.await);
    }
    let task = runtime.unwrap_or_else(|| handle()).spawn(future);
    let _abort_on_drop = AbortOnDrop(task.abort_handle());
    task.await
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs a step that may block on a thread of its own, and waits for its end. `what` is for errors,
/// such as "the function for the password".
///
/// tokio's `spawn_blocking` panics if no thread can be started, and yet may run the step later.
/// Here, a step whose caller gets an error for want of a thread never runs. Every other step runs
/// once and to its end, even if its caller is dropped. A step waits while many others are under
/// way, such as requests to a name service that does not reply.
///
/// # Errors
/// [`is_unavailable`](Error::is_unavailable) if no thread can be started, or if the step panics.
pub(crate) async fn run_blocking<T: Send + 'static>(
    what: &'static str,
    step: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let permit = STEPS.acquire().await.expect("it is never closed");
    let (sender, reply) = oneshot::channel();
    let run = move || {
        let _permit = permit;
        let _entered = current().map(Handle::enter);
        // Nobody takes the reply if the caller was dropped.
        let _ = sender.send(step());
    };

    let thread = std::thread::Builder::new().name("leasehold-step".to_owned());
    thread.spawn(run).map_err(|error| {
        Error::exhausted(error, format_args!("cannot start a thread for {what}"))
    })?;
    let panicked = |_| Error::unavailable(format!("{what} panicked"));
    reply.await.map_err(panicked)
}

/// The blocking steps that may be under way: as many as the pool of a runtime of tokio has threads.
static STEPS: Semaphore = Semaphore::const_new(512);

/// Steps that wait for one thing, such as a mount or a service for passwords. If it does not reply,
/// further steps wait for those that hang, and leave the threads of the process to others.
#[derive(Clone, Debug)]
pub struct BlockingSteps(Arc<Semaphore>);

impl Default for BlockingSteps {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(STEPS_OF_ONE)))
    }
}

impl BlockingSteps {
    /// Runs a step as [`run_blocking`] does.
    ///
    /// # Errors
    /// Also if steps that do not return are in its way.
    pub async fn run<T: Send + 'static>(
        &self,
        what: &'static str,
        step: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let permits = Arc::clone(&self.0);
        let permit = timeout(PERMIT_MAX, permits.acquire_owned()).await;
        let permit = permit.map_err(|_| {
            Error::unavailable(format!(
                "{what} does not return: {STEPS_OF_ONE} calls are under way"
            ))
        })?;
        let permit = permit.expect("it is never closed");
        let run = move || {
            let _permit = permit;
            step()
        };
        run_blocking(what, run).await
    }
}

/// How long a step waits for one of the others to end: less than an attempt to connect may take, so
/// that its error names what does not return.
const PERMIT_MAX: Duration = Duration::from_secs(3);

/// Enough for the connections to a few servers at once, and a small part of all steps.
pub(crate) const STEPS_OF_ONE: usize = 16;

/// Runs `future` to its end and blocks this thread meanwhile.
///
/// Its requests use the background link. The caller link may belong to a runtime that cannot run
/// while this thread is blocked.
///
/// Inside a task of tokio the future ignores the budget of that task. tokio renews the budget when
/// the task returns to its scheduler, which it does not do while it blocks here, and what waits for
/// a new budget, timers included, would then wait for ever.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let _caller_scope = CallerScope::begin_blocking();
    pollster::block_on(tokio::task::coop::unconstrained(future))
}

/// Lets any executor poll `future`: timers and I/O inside it belong to the background thread.
pub fn on_background<F: Future>(future: F) -> OnBackground<F> {
    OnBackground { future }
}

pin_project! {
    /// The future that [`on_background`] returns.
    pub struct OnBackground<F> {
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for OnBackground<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _caller_scope = CallerScope::begin();
        let _entered = current().map(Handle::enter);

        self.project().future.poll(context)
    }
}

/// A future that always runs to its end.
///
/// The caller polls it in place, which is fast. If the caller drops it, the background thread
/// completes it, even if it was never polled.
pub(crate) struct Detached<T: Send + 'static> {
    /// `None` once it is complete.
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    /// Since when it is not complete; `None` before the first poll.
    pending_since: Option<Instant>,
}

impl<T: Send + 'static> Detached<T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self {
            future: Some(Box::pin(future)),
            pending_since: None,
        }
    }
}

impl<T: Send + 'static> Future for Detached<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // A future that panics is not put back: nobody may poll it again.
        let mut future = self
            .future
            .take()
            .expect("a future that has ended or panicked is not polled again");

        let polled = future.as_mut().poll(context);
        if polled.is_pending() {
            self.future = Some(future);
            self.pending_since.get_or_insert_with(Instant::now);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Detached<T> {
    fn drop(&mut self) {
        let Some(future) = self.future.take() else {
            return;
        };
        // The request belongs to the process that sent it, which shares the connection.
        if is_forked() {
            return std::mem::forget(future);
        }

        let departure = Departure::begin(self.pending_since.unwrap_or_else(Instant::now));
        spawn(async move {
            future.await;
            drop(departure);
        });
    }
}

/// Returns the runtime that polls the public method; `None` if no runtime does.
pub fn caller_runtime() -> Option<Id> {
    match CALLER.get() {
        Caller::Current => current_runtime(),
        Caller::Runtime(id) => Some(id),
        Caller::NoRuntime => None,
    }
}

/// Records the caller's runtime until it is dropped.
pub(crate) struct CallerScope {
    previous: Caller,
}

impl CallerScope {
    /// Records the current runtime, unless an outer scope has recorded one.
    pub(crate) fn begin() -> Self {
        let previous = CALLER.get();
        if let Caller::Current = previous {
            CALLER.set(current_runtime().map_or(Caller::NoRuntime, Caller::Runtime));
        }
        Self { previous }
    }

    /// Records that requests come from a blocked thread, which drives no connection.
    pub(crate) fn begin_blocking() -> Self {
        let previous = CALLER.replace(Caller::NoRuntime);
        Self { previous }
    }
}

impl Drop for CallerScope {
    fn drop(&mut self) {
        CALLER.set(self.previous);
    }
}

/// The runtime around the outermost [`CallerScope`] of this thread.
#[derive(Clone, Copy)]
enum Caller {
    /// Without a scope it is the runtime that runs this code.
    Current,
    Runtime(Id),
    NoRuntime,
}

thread_local! {
    static CALLER: Cell<Caller> = const { Cell::new(Caller::Current) };
}

fn current_runtime() -> Option<Id> {
    Handle::try_current().ok().map(|handle| handle.id())
}

static BACKGROUND: OnceLock<Background> = OnceLock::new();

#[derive(Debug)]
struct Background {
    runtime: Handle,
}

/// Returns the runtime of the background thread, unless the thread is in a simulated world.
pub(crate) fn current() -> Option<&'static Handle> {
    if simulation::is_active() {
        return None;
    }
    BACKGROUND.get().map(|background| &background.runtime)
}

/// Starts the thread, which builds its runtime itself: without a thread there is no runtime, which
/// could not be dropped in async code.
fn spawn_thread() -> io::Result<Handle> {
    // Tokio panics if it finds no descriptors for the two sockets of its signals, and then at each
    // later attempt too. It needs six.
    (0..3)
        .map(|_| UnixStream::pair())
        .collect::<io::Result<Vec<_>>>()?;
    let (sender, started) = mpsc::channel();

    std::thread::Builder::new()
        .name("leasehold".to_owned())
        .spawn(
            move || match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => {
                    // The thread that started this one waits for the handle.
                    let _ = sender.send(Ok(runtime.handle().clone()));
                    runtime.block_on(std::future::pending::<()>());
                }
                Err(error) => drop(sender.send(Err(error))),
            },
        )?;
    let panicked = |_| Err(io::Error::other("its runtime panicked"));
    started.recv().unwrap_or_else(panicked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panicking_step_is_an_error_and_the_next_step_runs() {
        let thread = || std::thread::current().id();
        let first = run_blocking("a step", thread).await.expect("it runs");
        let panicked = run_blocking("the step", || panic!("the test lets it")).await;
        let error: Error = panicked.map(|(): ()| ()).expect_err("no reply");
        assert!(error.is_unavailable() && error.to_string().contains("the step panicked"));

        let here = thread();
        let next = run_blocking("a step", thread).await.expect("it runs");
        assert!(first != here && next != here);
    }

    #[tokio::test]
    async fn step_runs_once_if_its_caller_is_dropped() {
        let (started, starts) = std::sync::mpsc::channel();
        let mut step = Box::pin(run_blocking("a step", move || started.send(())));
        let polled = futures_util::poll!(&mut step);
        drop(step);

        // The sender is dropped with the step.
        assert!(polled.is_pending() || polled.is_ready());
        assert_eq!(starts.into_iter().count(), 1);
    }
}
