//! Three ZooKeeper servers that keep one tree, over wires that can be cut.

use std::time::Duration;

use super::{ZooKeeper, ZooKeeperRelease, ZooKeeperSetup};
use crate::port::Port;
use crate::wait::until_within;
use crate::{Wire, until};

/// Three servers; two of them are enough to serve.
///
/// Each talks to the others through wires, so that one can be [parted](Ensemble::partition) from them while its clients still
/// reach it.
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
    /// From whom, to whom, and the wires to its two ports.
    wires: Vec<(usize, usize, [Wire; 2])>,
    // Kept for the servers: where they hear each other.
    _ports: Vec<[Port; 2]>,
}

const COUNT: usize = 3;

impl Ensemble {
    /// Starts three of the newest release.
    #[must_use]
    pub fn start() -> Self {
        Self::of(&ZooKeeper::setup().release(ZooKeeperRelease::Newest))
    }

    /// Starts three of this set-up.
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
        // A vote that was lost is repeated soon, and not up to a minute later; and who does not answer is not waited for.
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

    /// Where clients find it: all servers, `zookeeper://A,B,C`.
    #[must_use]
    pub fn url(&self) -> String {
        let addresses: Vec<String> = self.servers.iter().map(ZooKeeper::address).collect();
        format!("zookeeper://{}", addresses.join(","))
    }

    /// One of the three.
    #[must_use]
    pub fn server(&self, index: usize) -> &ZooKeeper {
        &self.servers[index]
    }

    /// One of the three, to be killed or started.
    pub fn server_mut(&mut self, index: usize) -> &mut ZooKeeper {
        &mut self.servers[index]
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.servers.len()
    }

    /// Waits until there is a leader; which one.
    #[must_use]
    pub fn leader(&self) -> usize {
        self.leader_without(self.count())
    }

    /// Waits until another than `without` leads, whatever that one thinks of itself; which one.
    #[must_use]
    pub fn leader_without(&self, without: usize) -> usize {
        const TIMEOUT: Duration = Duration::from_secs(20);
        let leads = |index: &usize| {
            *index != without && self.servers[*index].mode().as_deref() == Some("leader")
        };
        let look = || Ok((0..self.count()).find(leads));
        for _ in 0..5 {
            if let Ok(leader) = until_within(TIMEOUT, "a leader", look) {
                return leader;
            }
            // Now and then two servers that can reach each other wait for ever to hear of each other's vote. On new
            // connections they do.
            let others = self
                .wires
                .iter()
                .filter(|(from, to, _)| *from != without && *to != without);
            others
                .flat_map(|(_, _, wires)| wires)
                .for_each(Wire::partition);
        }
        until("a leader", look)
            .unwrap_or_else(|error| panic!("two of three elect none: {error}\n{}", self.logs()))
    }

    /// What the servers last said.
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

    /// Cuts a server off from the two others, at once and for those with a reset; its clients still reach it.
    pub fn partition(&self, one: usize) {
        // All at once: a vote that slips through while they are cut one by one makes others wait for who is gone.
        self.freeze(one);
        self.between(one).for_each(|wire| {
            wire.refuse(true);
            wire.partition();
        });
        self.between(one).for_each(|wire| wire.freeze(false));
    }

    /// As [`partition`](Self::partition), but nobody is told: all silence, for both sides.
    pub fn freeze(&self, one: usize) {
        self.between(one).for_each(|wire| wire.freeze(true));
    }

    /// Cuts a server off without a word, and starts the others anew: they soon have a leader of their own, while the one
    /// that is cut off still waits to hear of them.
    pub fn partition_one_way(&mut self, one: usize) {
        self.freeze(one);
        for other in (0..self.count()).filter(|other| *other != one) {
            self.servers[other].start_after_kill();
        }
    }

    /// Lets nobody follow one: it is elected as ever, and then leads nobody.
    pub fn isolate(&self, one: usize) {
        for (_, _, [following, _]) in self.wires.iter().filter(|(_, to, _)| *to == one) {
            following.refuse(true);
            following.partition();
        }
    }

    /// Lets all reach each other again.
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
