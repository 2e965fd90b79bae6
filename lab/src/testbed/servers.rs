//! The servers of a testbed, of any kind.

use std::any::Any;
use std::fmt;

use lab_servers::{Cluster, Redis, Sentinels, ZooKeeper};

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

/// The master at the time of the call.
impl Servers for Sentinels {
    fn count(&self) -> usize {
        1
    }

    fn server(&self, _: usize) -> &dyn Server {
        Self::server(self, self.master())
    }

    fn server_mut(&mut self, _: usize) -> &mut dyn Server {
        Self::server_mut(self, self.master())
    }
}

impl Servers for Cluster {
    fn count(&self) -> usize {
        Self::count(self)
    }

    fn server(&self, number: usize) -> &dyn Server {
        self.node(number)
    }

    fn server_mut(&mut self, number: usize) -> &mut dyn Server {
        self.node_mut(number)
    }
}

impl Server for Redis {
    fn kill(&mut self) {
        Self::kill(self);
    }

    fn restart(&mut self) {
        Self::restart(self);
    }

    fn pause(&self) {
        Self::pause(self);
    }

    fn resume(&self) {
        Self::resume(self);
    }
}

impl Server for ZooKeeper {
    fn kill(&mut self) {
        Self::kill(self);
    }

    fn restart(&mut self) {
        self.start_after_kill();
    }

    fn pause(&self) {
        Self::pause(self);
    }

    fn resume(&self) {
        Self::resume(self);
    }
}
