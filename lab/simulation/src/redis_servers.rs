//! The servers of a history, and their faults.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use lab_redis_model::{Cluster, Host, Restart, Sentinels};

use crate::plan::{RedisPlan, ServerGroup};
use crate::server::Nanos;

/// The servers that the URL of a history names.
pub(crate) struct Servers {
    /// Until when no client can connect.
    pub(crate) down_until: Nanos,
    group: Group,
    restart: Restart,
}

enum Group {
    /// Masters that know nothing of each other.
    None(BTreeMap<&'static str, Arc<Host>>),
    Sentinels(Sentinels),
    Cluster(Cluster),
}

/// A fault that has begun.
pub(crate) enum ServerFault {
    /// A server has stopped.
    Stopped(Arc<Host>),
    /// The slot of the lock is being moved.
    MovingSlot,
}

/// The first key of the lock.
const KEY: &str = "leasehold:{lock-0}";
const PAIRS: &[[&str; 2]] = &[["a", "a2"], ["b", "b2"], ["c", "c2"]];

impl Servers {
    pub(crate) fn start(plan: &RedisPlan, lease: Duration) -> Self {
        let group = match plan.store.servers {
            ServerGroup::Masters(names) => {
                let start = |name| (name, Host::start(&format!("{name:0>40}")));
                Group::None(names.iter().copied().map(start).collect())
            }
            // A replica may lack grants, because the new master waits until they have ended.
            ServerGroup::Sentinels => {
                let group = Sentinels::start("main", &["s1", "s2", "s3"], ["a", "b"], lease / 10);
                Group::Sentinels(group)
            }
            // There is no such wait, so a replica has all grants.
            ServerGroup::Cluster => Group::Cluster(Cluster::start(PAIRS, Duration::ZERO)),
        };
        let restart = if plan.store.forgets {
            Restart::Empty
        } else {
            Restart::WithData
        };
        Self {
            down_until: 0,
            group,
            restart,
        }
    }

    /// Returns a server that accepts connections.
    pub(crate) fn reachable(&self, name: &str, now: Nanos) -> Option<Arc<Host>> {
        let host = match &self.group {
            Group::None(hosts) => hosts.get(name).cloned(),
            Group::Sentinels(group) => group.host(name),
            Group::Cluster(group) => group.host(name),
        };
        let host =
            host.expect("clients connect to servers of the URL, and to those that they name");
        (now >= self.down_until && host.is_running()).then_some(host)
    }

    /// Stops a server, or begins to move the slot of the lock.
    pub(crate) fn begin_fault(&mut self, rng: &mut Rng) -> ServerFault {
        let stopped = match &mut self.group {
            Group::None(hosts) => rng.choice(hosts.values()).expect("a server").clone(),
            Group::Sentinels(group) => Arc::clone(group.master()),
            Group::Cluster(group) if rng.bool() => {
                let to = (group.owner_of(KEY) + 1) % PAIRS.len();
                group.begin_move(KEY, to);
                return ServerFault::MovingSlot;
            }
            Group::Cluster(group) => Arc::clone(group.master(group.owner_of(KEY))),
        };
        stopped.stop();
        ServerFault::Stopped(stopped)
    }

    /// Restarts the server that has stopped, as a replica if it has one, or ends the move.
    pub(crate) fn end_fault(&mut self, fault: ServerFault) {
        match (&mut self.group, &fault) {
            (Group::None(_), _) => {}
            (Group::Sentinels(group), _) => {
                group.fail_over();
                group.rejoin();
            }
            (Group::Cluster(group), ServerFault::Stopped(_)) => {
                let pair = group.owner_of(KEY);
                group.fail_over(pair);
                group.rejoin(pair);
            }
            (Group::Cluster(group), ServerFault::MovingSlot) => group.end_move(KEY),
        }
        if let ServerFault::Stopped(server) = fault {
            server.restart(self.restart);
        }
    }
}
