//! Servers that belong together.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::Node;
use crate::host::Host;
use crate::script::sha1hex;
use crate::sentinel::Sentinel;

/// What a server knows of its group.
#[derive(Debug)]
pub(crate) enum Group {
    None,
    Sentinel(Sentinel),
    Cluster(Node),
}

/// The port that every server of a group announces.
pub(crate) const PORT: u16 = 6379;

/// A master and its replica.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) master: Member,
    pub(crate) other: Member,
    lag: Duration,
}

/// A server with the host name that it announces.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) host: Arc<Host>,
}

impl Pair {
    pub(crate) fn start([master, replica]: [&str; 2], lag: Duration) -> Self {
        let pair = Self {
            master: Member::start(master),
            other: Member::start(replica),
            lag,
        };
        pair.rejoin();
        pair
    }

    /// Promotes the replica. The old master knows nothing of it, and may have stopped.
    pub(crate) fn fail_over(&mut self) {
        self.other.host.promote();
        std::mem::swap(&mut self.master, &mut self.other);
    }

    /// Makes the other server a replica of the master.
    pub(crate) fn rejoin(&self) {
        self.other.host.follow(&self.master.host, self.lag);
    }

    pub(crate) fn members(&self) -> [&Member; 2] {
        [&self.master, &self.other]
    }
}

impl Member {
    pub(crate) fn start(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            host: Host::start(&sha1hex(name.as_bytes())),
        }
    }
}

/// Returns the server with this name.
pub(crate) fn named<'a>(
    mut members: impl Iterator<Item = &'a Member>,
    name: &str,
) -> Option<Arc<Host>> {
    let member = members.find(|member| member.name == name)?;
    Some(Arc::clone(&member.host))
}
