//! The one background thread of a process.
//!
//! Renewals, departures and inboxes run here, so that a runtime of the user's that is busy, stopped or missing can
//! neither cost a lock nor leave one behind. Faces may be polled by any executor: [`OnBackground`] lends them this runtime's
//! timers and I/O.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use pin_project_lite::pin_project;
use tokio::runtime::{self, Builder, Handle};

use crate::drain::Departure;
use crate::{Error, Result};

static HANDLE: OnceLock<Handle> = OnceLock::new();

/// Starts the thread on first use.
///
/// # Errors
/// Unavailable if the machine has no thread or descriptor left.
pub(crate) fn start() -> Result<&'static Handle> {
    static STARTING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = STARTING.lock();
    if HANDLE.get().is_none() {
        let handle = spawn_thread().map_err(|error| {
            Error::unavailable("the background thread cannot be started").caused_by(error)
        })?;
        HANDLE.set(handle).expect("only one thread is in here");
    }
    Ok(handle())
}

/// The runtime of the background thread; for code that runs after [`start`].
pub(crate) fn handle() -> &'static Handle {
    HANDLE
        .get()
        .expect("opening a store starts the background thread")
}

fn spawn_thread() -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let run = move || runtime.block_on(std::future::pending::<()>());
    std::thread::Builder::new()
        .name("leasehold".to_owned())
        .spawn(run)?;
    Ok(handle)
}

/// Lets any executor poll `future`: timers and I/O inside it belong to the background thread.
pub(crate) fn on_background<F: Future>(future: F) -> OnBackground<F> {
    OnBackground { future }
}

/// Runs `future` to its end on this thread.
///
/// Its requests take the background link. The caller's link may belong to a runtime that this thread, while blocked,
/// keeps from running.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let _caller_scope = CallerScope::begin_blocking();
    pollster::block_on(future)
}

pin_project! {
    pub(crate) struct OnBackground<F> {
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for OnBackground<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _caller_scope = CallerScope::begin();
        let _entered = HANDLE.get().map(|background| {
            keep_ticking(background);
            background.enter()
        });
        self.project().future.poll(context)
    }
}

/// Somebody has asked since the background last looked.
static CALLER_DEPTH: AtomicBool = AtomicBool::new(false);
static TICKING: AtomicBool = AtomicBool::new(false);

/// Every question sets timers that hardly ever ring: they bound how long an answer may take. A timer wakes the background
/// thread if it is to ring sooner than the thread wakes by itself, so while anybody asks it wakes by itself once a second.
fn keep_ticking(background: &Handle) {
    if !CALLER_DEPTH.load(Ordering::Relaxed) {
        CALLER_DEPTH.store(true, Ordering::Relaxed);
    }
    if !TICKING.load(Ordering::Relaxed) && !TICKING.swap(true, Ordering::AcqRel) {
        background.spawn(tick());
    }
}

async fn tick() {
    while CALLER_DEPTH.swap(false, Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    TICKING.store(false, Ordering::Release);
}

thread_local! {
    static CALLER_RUNTIME: Cell<CallerRuntime> = const { Cell::new(CallerRuntime::Current) };
}

/// Who asks: the runtime around the outermost [`OnBackground`] that is being polled.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "only stores on a network want to know")]
enum CallerRuntime {
    /// None is being polled, so whoever runs this.
    Current,
    Runtime(runtime::Id),
    None,
}

/// The runtime that asks: the one in which a face is polled.
#[allow(dead_code, reason = "only stores on a network want to know")]
pub(crate) fn caller_runtime() -> Option<runtime::Id> {
    match CALLER_RUNTIME.get() {
        CallerRuntime::Current => current(),
        CallerRuntime::Runtime(id) => Some(id),
        CallerRuntime::None => None,
    }
}

fn current() -> Option<runtime::Id> {
    Handle::try_current().ok().map(|handle| handle.id())
}

/// Remembers who asks until dropped, unless somebody further out does already.
struct CallerScope {
    previous: CallerRuntime,
}

impl CallerScope {
    fn begin() -> Self {
        let before = CALLER_RUNTIME.get();
        if let CallerRuntime::Current = before {
            CALLER_RUNTIME.set(current().map_or(CallerRuntime::None, CallerRuntime::Runtime));
        }
        Self { previous: before }
    }

    /// Requests come from a thread that drives no connection, whatever runtime is around it.
    fn begin_blocking() -> Self {
        Self {
            previous: CALLER_RUNTIME.replace(CallerRuntime::None),
        }
    }
}

impl Drop for CallerScope {
    fn drop(&mut self) {
        CALLER_RUNTIME.set(self.previous);
    }
}

/// A future that runs to its end: polled in place for speed, carried on in the background if it is dropped. Dropping one
/// that was never polled starts it.
pub(crate) struct Detached<T: Send + 'static>(Option<Pin<Box<dyn Future<Output = T> + Send>>>);

impl<T: Send + 'static> Detached<T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Some(Box::pin(future)))
    }
}

impl<T: Send + 'static> Future for Detached<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let future = self
            .0
            .as_mut()
            .expect("a future is not polled after it is done");
        let reply = std::task::ready!(future.as_mut().poll(context));
        self.0 = None;
        Poll::Ready(reply)
    }
}

impl<T: Send + 'static> Drop for Detached<T> {
    fn drop(&mut self) {
        if let Some(future) = self.0.take() {
            let departure = Departure::begin();
            handle().spawn(async move {
                future.await;
                drop(departure);
            });
        }
    }
}
