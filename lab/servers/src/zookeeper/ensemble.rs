//! Three ZooKeeper servers that keep one tree. They are connected through wires that a test can
//! cut.

use std::thread::sleep;
use std::time::Duration;

use super::{ZooKeeper, ZooKeeperRelease, ZooKeeperSetup};
use crate::port::Port;
use crate::wait::until_within;
use crate::{Wire, until};

/// An ensemble of three servers. Two of them are a quorum.
///
/// Each server connects to the others through wires. So a test can [partition](Ensemble::partition)
/// one server from the others while its clients still reach it.
///
/// ```no_run
/// use lab_servers::Ensemble;
///
/// let mut ensemble = Ensemble::start();
/// let leader = ensemble.leader();
/// ensemble.partition(leader);
/// assert_ne!(ensemble.leader_without(leader), leader);
/// ensemble.heal();
/// ```
#[derive(Debug)]
pub struct Ensemble {
    servers: Vec<ZooKeeper>,
    /// The index of the connecting server, the index of its peer, and the wires to the two ports of
    /// the peer.
    wires: Vec<(usize, usize, [Wire; 2])>,
    // The ports that the servers use among themselves, reserved for the life of the ensemble.
    _ports: Vec<[Port; 2]>,
}

const COUNT: usize = 3;

impl Ensemble {
    /// Starts three servers of the newest release.
    #[must_use]
    pub fn start() -> Self {
        Self::of(&ZooKeeper::setup().release(ZooKeeperRelease::Newest))
    }

    /// Starts three servers with this set-up.
    #[must_use]
    pub fn of(setup: &ZooKeeperSetup) -> Self {
        let ports: Vec<[Port; 2]> = (0..COUNT)
            .map(|_| [Port::reserve(), Port::reserve()])
            .collect();
        let wire = |port: &Port| Wire::to(("127.0.0.1", port.number()));
        let pairs = (0..COUNT)
            .flat_map(|from| (0..COUNT).map(move |to| (from, to)))
            .filter(|(from, to)| from != to);
        let wires: Vec<_> = pairs
            .map(|(from, to)| (from, to, [wire(&ports[to][0]), wire(&ports[to][1])]))
            .collect();

        let servers = (0..COUNT)
            .map(|own| Self::server_of(setup, own, &ports, &wires))
            .collect();
        let ensemble = Self {
            servers,
            wires,
            _ports: ports,
        };
        ensemble.servers.iter().for_each(ZooKeeper::serves);
        ensemble
    }

    fn server_of(
        setup: &ZooKeeperSetup,
        own: usize,
        ports: &[[Port; 2]],
        wires: &[(usize, usize, [Wire; 2])],
    ) -> ZooKeeper {
        // A server repeats a lost vote after one second, and not up to a minute later. A connection
        // attempt without a reply ends after one second too.
        let quick = |setup: ZooKeeperSetup, what: &str| {
            setup.property(&format!("zookeeper.{what}"), "1000")
        };
        let mut setup = quick(
            quick(setup.clone(), "fastleader.maxNotificationInterval"),
            "cnxTimeout",
        );
        for (to, real) in ports.iter().enumerate() {
            let seen = wires
                .iter()
                .find(|(from, there, _)| (*from, *there) == (own, to));
            let numbers = seen.map_or([real[0].number(), real[1].number()], |(_, _, [a, b])| {
                [a.port(), b.port()]
            });
            let value = format!("127.0.0.1:{}:{}", numbers[0], numbers[1]);
            setup = setup.config(&format!("server.{}", to + 1), &value);
        }
        setup.launch(Port::reserve(), Some(own + 1))
    }

    /// The URL for clients, with all servers: `zookeeper://A,B,C`.
    #[must_use]
    pub fn url(&self) -> String {
        let addresses: Vec<String> = self.servers.iter().map(ZooKeeper::address).collect();
        format!("zookeeper://{}", addresses.join(","))
    }

    /// Returns one of the three servers.
    #[must_use]
    pub fn server(&self, index: usize) -> &ZooKeeper {
        &self.servers[index]
    }

    /// Returns one of the three servers, so that a test can kill or start it.
    pub fn server_mut(&mut self, index: usize) -> &mut ZooKeeper {
        &mut self.servers[index]
    }

    /// The number of servers.
    #[must_use]
    pub fn count(&self) -> usize {
        self.servers.len()
    }

    /// Waits until the ensemble has a leader, and returns the leader's index.
    #[must_use]
    pub fn leader(&self) -> usize {
        self.leader_without(self.count())
    }

    /// Waits until a server other than `without` leads, and returns its index. The mode that
    /// `without` reports is ignored.
    #[must_use]
    pub fn leader_without(&self, without: usize) -> usize {
        const TIMEOUT: Duration = Duration::from_secs(20);
        const PAUSE: Duration = Duration::from_millis(700);
        let leads = |index: &usize| {
            *index != without && self.servers[*index].mode().as_deref() == Some("leader")
        };
        let look = || Ok((0..self.count()).find(leads));
        for attempt in 0..5 {
            if let Ok(leader) = until_within(TIMEOUT, "a leader", look) {
                return leader;
            }
            // Sometimes two connected servers wait forever for each other's vote. New connections
            // deliver the votes.
            let others = self
                .wires
                .iter()
                .filter(|(from, to, _)| *from != without && *to != without);
            others
                .flat_map(|(_, _, wires)| wires)
                .for_each(Wire::partition);
            // Two servers can also miss each other again and again, as both give up after the same
            // time. A pause of one of them changes that.
            if let Some(one) = (0..self.count()).find(|index| *index != without) {
                self.servers[one].pause();
                sleep(PAUSE * (attempt + 1));
                self.servers[one].resume();
            }
        }

        until("a leader", look).unwrap_or_else(|error| {
            panic!(
                "two of three servers did not elect a leader: {error}\n{}",
                self.logs()
            )
        })
    }

    /// The last lines of the logs of all servers.
    fn logs(&self) -> String {
        let last = |server: &ZooKeeper| {
            let log = server.log();
            let lines: Vec<&str> = log.lines().collect();
            lines[lines.len().saturating_sub(60)..].join("\n")
        };
        self.servers
            .iter()
            .map(last)
            .collect::<Vec<_>>()
            .join("\n\n")
    }

    /// Cuts a server off from the two others at once. The others observe a reset. The clients of
    /// the server still reach it.
    pub fn partition(&self, one: usize) {
        // All wires freeze first. If they were cut one by one, a late vote could make the others
        // wait for the absent server.
        self.freeze(one);
        self.between(one).for_each(|wire| {
            wire.refuse(true);
            wire.partition();
        });
        self.between(one).for_each(|wire| wire.freeze(false));
    }

    /// Cuts a server off as [`partition`](Self::partition) does, without a reset. Both sides stop
    /// receiving bytes.
    pub fn freeze(&self, one: usize) {
        self.between(one).for_each(|wire| wire.freeze(true));
    }

    /// Cuts a server off without a reset, and restarts the others. The others soon elect a new
    /// leader, while the isolated server still waits for their messages.
    pub fn partition_one_way(&mut self, one: usize) {
        self.freeze(one);
        for other in (0..self.count()).filter(|other| *other != one) {
            self.servers[other].start_after_kill();
        }
    }

    /// Prevents the others from following one server. The server can still win the election, and
    /// then does not get followers.
    pub fn isolate(&self, one: usize) {
        for (_, _, [following, _]) in self.wires.iter().filter(|(_, to, _)| *to == one) {
            following.refuse(true);
            following.partition();
        }
    }

    /// Lets all servers reach each other again.
    pub fn heal(&self) {
        for wire in self.wires.iter().flat_map(|(_, _, wires)| wires) {
            wire.freeze(false);
            wire.refuse(false);
        }
    }

    fn between(&self, one: usize) -> impl Iterator<Item = &Wire> {
        let concerns = move |(from, to, _): &&(usize, usize, [Wire; 2])| *from == one || *to == one;
        self.wires
            .iter()
            .filter(concerns)
            .flat_map(|(_, _, wires)| wires)
    }
}
