//! A world in place of the machine: its clocks, its threads and its random numbers.
//!
//! A test enters a [`World`] on its thread. Until it leaves the world, every part of this crate
//! that runs on the thread reads time, spawns tasks and draws claim ids from the world. The variant
//! of this module for builds without the feature has the same functions, and does nothing.
//!
//! A runtime whose clock is [followed](follow_tokio_clock) is a world for all threads in it.

mod tokio_clock;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::clock::{BootInstant, SystemTimer};

pub use tokio_clock::follow_tokio_clock;

/// A task of the background.
pub type BackgroundTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a simulated thread gives the library.
pub trait World: Send + Sync {
    /// Returns the time of the clock that the running code reads.
    fn now(&self) -> BootInstant;

    /// Returns when that clock shows `time`.
    fn instant_of(&self, time: BootInstant) -> Instant;

    /// Draws the bytes of a claim id.
    fn draw_id(&self) -> [u8; 16];

    /// Runs a task in the background of the running process.
    fn spawn(&self, task: BackgroundTask) -> AbortHandle;

    /// Connects the running process to a server.
    fn connect(&self, host: &str, port: u16) -> io::Result<Box<dyn Connection>>;
}

/// A connection to a simulated server.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Enters a world on this thread, until the scope is dropped.
///
/// The caller runs inside a tokio runtime whose time the world controls.
#[must_use]
pub fn enter(world: Arc<dyn World>) -> Scope {
    IS_SIMULATED.set(true);
    WORLD.replace(Some(world));
    Scope {
        of_this_thread: PhantomData,
    }
}

/// A stay in a world. Dropping it returns to the machine.
#[derive(Debug)]
pub struct Scope {
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for Scope {
    fn drop(&mut self) {
        IS_SIMULATED.set(false);
        WORLD.replace(None);
    }
}

pub(crate) fn is_active() -> bool {
    IS_SIMULATED.get() || tokio_clock::current().is_some()
}

pub(crate) fn now() -> Option<BootInstant> {
    in_world(|world| world.now())
}

pub(crate) fn draw_id() -> Option<[u8; 16]> {
    in_world(|world| world.draw_id())
}

/// Spawns the task in the world; returns the task on a thread without a world.
pub(crate) fn spawn<F>(task: F) -> Result<AbortHandle, F>
where
    F: Future<Output = ()> + Send + 'static,
{
    if !is_active() {
        return Err(task);
    }
    let spawned = in_world(|world| world.spawn(Box::pin(task)));
    Ok(spawned.expect("the thread is in a world"))
}

/// Connects to a server of the world; `None` on a thread without a world.
pub fn connect(host: &str, port: u16) -> Option<io::Result<SimulatedStream>> {
    let connected = in_world(|world| world.connect(host, port))?;
    Some(connected.map(SimulatedStream))
}

/// A connection of a world.
pub struct SimulatedStream(Box<dyn Connection>);

impl AsyncRead for SimulatedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for SimulatedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// The timer of the system, or of the world in which it is created.
#[derive(Debug)]
pub(crate) enum BootTimer {
    System(SystemTimer),
    Simulated,
}

impl BootTimer {
    pub(crate) fn new() -> io::Result<Self> {
        if is_active() {
            return Ok(Self::Simulated);
        }
        SystemTimer::new().map(Self::System)
    }

    /// Waits until `deadline`; returns at once if it has passed.
    pub(crate) async fn fires_at(&self, deadline: BootInstant) -> io::Result<()> {
        if let Self::System(timer) = self {
            return timer.fires_at(deadline).await;
        }
        if deadline == BootInstant::FAR_FUTURE {
            return std::future::pending().await;
        }

        while BootInstant::now() < deadline {
            let at = in_world(|world| world.instant_of(deadline));
            tokio::time::sleep_until(at.expect("the thread is in a world")).await;
        }
        Ok(())
    }
}

thread_local! {
    static IS_SIMULATED: Cell<bool> = const { Cell::new(false) };
    static WORLD: RefCell<Option<Arc<dyn World>>> = const { RefCell::new(None) };
}

/// The world is borrowed no longer than for reading it: it may call back into this crate.
fn in_world<T>(work: impl FnOnce(&dyn World) -> T) -> Option<T> {
    let world = if IS_SIMULATED.get() {
        WORLD.with_borrow(Option::clone)
    } else {
        tokio_clock::current()
    };
    world.map(|world| work(&*world))
}
