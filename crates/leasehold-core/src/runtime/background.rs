//! The one background thread of a process.
//!
//! Renewals, departures and the file store's inbox run on it. So no lock is lost and no entry is
//! left behind if the user's runtime is busy, stopped or absent.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use pin_project_lite::pin_project;
use tokio::runtime::{Builder, Handle};
use tokio::task::{AbortHandle, JoinError};

use super::caller::CallerScope;
use super::simulation;
use crate::{Error, Result};

/// Starts the thread on first use.
///
/// # Errors
/// [`is_unavailable`](Error::is_unavailable) if the system has no thread or descriptor left.
pub fn start() -> Result<&'static Handle> {
    static STARTING: Mutex<()> = Mutex::new(());
    let _starting = STARTING.lock();

    if HANDLE.get().is_none() {
        let handle = spawn_thread().map_err(|error| {
            let message = format!("the background thread cannot be started: {error}");
            Error::unavailable(message).caused_by(error)
        })?;
        HANDLE.set(handle).expect("the mutex admits one thread");
    }
    Ok(handle())
}

/// Returns the runtime of the background thread, for code that runs after [`start`].
pub fn handle() -> &'static Handle {
    HANDLE
        .get()
        .expect("opening a store starts the background thread")
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

/// Spawns a task on the runtime that polls this code.
pub fn spawn_here(task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    match simulation::spawn(task) {
        Ok(task) => task,
        Err(task) => tokio::spawn(task).abort_handle(),
    }
}

/// Runs a future on a runtime, or on the background thread, and waits for its end.
///
/// # Errors
/// If the runtime ends before the future does.
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
    runtime.unwrap_or_else(|| handle()).spawn(future).await
}

/// Runs `future` to its end and blocks this thread meanwhile.
///
/// Its requests use the background link. The caller link may belong to a runtime that cannot run
/// while this thread is blocked.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let _caller_scope = CallerScope::begin_blocking();
    pollster::block_on(future)
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

static HANDLE: OnceLock<Handle> = OnceLock::new();

/// Returns the runtime of the background thread, unless the thread is in a simulated world.
fn current() -> Option<&'static Handle> {
    if simulation::is_active() {
        return None;
    }
    HANDLE.get()
}

fn spawn_thread() -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();

    std::thread::Builder::new()
        .name("leasehold".to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(handle)
}
