//! Sentinels that name the master of a pair of servers.

use std::sync::Arc;
use std::time::Duration;

use crate::group::{Group, Member, PORT, Pair, named};
use crate::host::Host;
use crate::reply::Reply;

/// A master, its replica, and sentinels that watch them.
///
/// The sentinels do not notice anything by themselves: a test begins each failover.
#[derive(Debug)]
pub struct Sentinels {
    pair: Pair,
    watchers: Vec<Member>,
    /// The name of the master in the URL.
    master: String,
    epoch: u64,
}

/// What one sentinel replies.
#[derive(Debug)]
pub(crate) struct Sentinel {
    master: String,
    /// The host name of the server.
    server: String,
    epoch: u64,
}

impl Sentinels {
    /// Starts sentinels and servers with these host names. `master` is the name in the URL.
    #[must_use]
    pub fn start(master: &str, sentinels: &[&str], servers: [&str; 2], lag: Duration) -> Self {
        let group = Self {
            pair: Pair::start(servers, lag),
            watchers: sentinels.iter().map(|name| Member::start(name)).collect(),
            master: master.to_owned(),
            epoch: 0,
        };
        group.inform();
        group
    }

    /// Returns the server or the sentinel with this host name.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<Arc<Host>> {
        named(self.watchers.iter().chain(self.pair.members()), name)
    }

    /// Returns the master.
    #[must_use]
    pub fn master(&self) -> &Arc<Host> {
        &self.pair.master.host
    }

    /// Promotes the replica with what it has received. The old master remains a master until it
    /// [rejoins](Self::rejoin) the group. A sentinel that is stopped does not learn of it.
    pub fn fail_over(&mut self) {
        self.pair.fail_over();
        self.epoch += 1;
        self.inform();

        let Pair { master, other, .. } = &self.pair;
        let switch = [&self.master, &other.name, &master.name];
        let text = format!("{} {} {PORT} {} {PORT}", switch[0], switch[1], switch[2]);
        for watcher in &self.watchers {
            watcher.host.request(&["PUBLISH", "+switch-master", &text]);
        }
    }

    /// Makes the old master a replica. As a sentinel does, this ends all of its connections.
    pub fn rejoin(&self) {
        self.pair.rejoin();
        self.pair.other.host.disconnect_all();
    }

    fn inform(&self) {
        for watcher in self.watchers.iter().filter(|one| one.host.is_running()) {
            watcher.host.join(Group::Sentinel(Sentinel {
                master: self.master.clone(),
                server: self.pair.master.name.clone(),
                epoch: self.epoch,
            }));
        }
    }
}

impl Sentinel {
    pub(crate) fn reply(&self, words: &[Vec<u8>]) -> Option<Reply> {
        let [name, word, master] = words else {
            return None;
        };
        if !name.eq_ignore_ascii_case(b"SENTINEL") {
            return None;
        }
        if *master != self.master.as_bytes() {
            return Some(Reply::Error("ERR No such master with that name".to_owned()));
        }

        let epoch = self.epoch.to_string();
        let port = PORT.to_string();
        let texts: &[&str] = match word.to_ascii_uppercase().as_slice() {
            b"MASTER" => &["name", &self.master, "config-epoch", &epoch],
            b"GET-MASTER-ADDR-BY-NAME" => &[&self.server, &port],
            _ => return None,
        };
        Some(Reply::List(texts.iter().map(Reply::text).collect()))
    }
}
