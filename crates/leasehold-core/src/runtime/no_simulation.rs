//! The machine itself, in builds without simulation. The compiler removes every call.

use std::future::Future;
use std::io;

use tokio::task::AbortHandle;

use super::clock::BootInstant;

pub(crate) use super::clock::SystemTimer as BootTimer;
/// A socket in place of a connection of a world, which does not exist.
pub(crate) use tokio::net::TcpStream as SimulatedStream;

pub(crate) const fn is_active() -> bool {
    false
}

pub(crate) const fn now() -> Option<BootInstant> {
    None
}

pub(crate) const fn draw_id() -> Option<[u8; 16]> {
    None
}

pub(crate) fn spawn<F>(task: F) -> Result<AbortHandle, F>
where
    F: Future<Output = ()> + Send + 'static,
{
    Err(task)
}

pub(crate) const fn connect(_host: &str, _port: u16) -> Option<io::Result<SimulatedStream>> {
    None
}
