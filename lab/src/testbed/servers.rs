//! The servers of a testbed, of any kind.

use std::any::Any;
use std::fmt;
use std::path::Path;

use tempfile::TempDir;

/// The servers of a store.
pub trait Servers: Any + fmt::Debug {
    /// The number of servers.
    fn count(&self) -> usize;

    /// One of the servers.
    fn server(&self, number: usize) -> &dyn Server;

    /// One of the servers, to be killed or restarted.
    fn server_mut(&mut self, number: usize) -> &mut dyn Server;
}

/// One server process.
pub trait Server: Any + fmt::Debug {
    /// Kills the process.
    fn kill(&mut self);

    /// Starts the server again at its address, after it killed a running process.
    fn restart(&mut self);

    /// Stops the process with SIGSTOP.
    fn pause(&self);

    /// Continues a stopped process.
    fn resume(&self);

    /// The folder of its data and its log.
    fn folder(&self) -> &Path;
}

impl<S: Server> Servers for Vec<S> {
    fn count(&self) -> usize {
        self.len()
    }

    fn server(&self, number: usize) -> &dyn Server {
        &self[number]
    }

    fn server_mut(&mut self, number: usize) -> &mut dyn Server {
        &mut self[number]
    }
}

/// A store without servers of the lab; the folder of a file store is removed at the end.
impl Servers for Option<TempDir> {
    fn count(&self) -> usize {
        0
    }

    fn server(&self, _: usize) -> &dyn Server {
        unreachable!("the store has no servers")
    }

    fn server_mut(&mut self, _: usize) -> &mut dyn Server {
        unreachable!("the store has no servers")
    }
}
