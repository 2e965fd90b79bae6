//! Three masters that divide the keys, each with a replica.

use std::time::Duration;

use super::{Redis, Reply, Setup};
use crate::{until, until_within};

/// A Redis Cluster of three masters and three replicas. Each master has a third of the slots.
///
/// ```no_run
/// use lab_servers::Cluster;
///
/// let mut cluster = Cluster::start();
/// let slot = cluster.slot_of("leasehold:{a}");
/// let master = cluster.master_of(slot);
/// cluster.node_mut(master).kill();
/// assert_ne!(cluster.master_other_than(master, slot), master);
/// ```
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Redis>,
    ids: Vec<String>,
}

const MASTERS: usize = 3;
const SLOTS: usize = 16_384;

impl Cluster {
    /// Starts the nodes with the usual set-up.
    #[must_use]
    pub fn start() -> Self {
        Self::of(&Redis::setup())
    }

    /// Starts the nodes with this set-up. The first three are masters, and each node three later is
    /// the replica of one of them.
    #[must_use]
    pub fn of(setup: &Setup) -> Self {
        let setup = setup
            .clone()
            .cluster_node()
            .config("cluster-node-timeout", "2000")
            .config("cluster-replica-validity-factor", "0");
        let nodes: Vec<Redis> = (0..2 * MASTERS).map(|_| setup.clone().start()).collect();
        let ids = nodes
            .iter()
            .map(|node| node.command(&["CLUSTER", "MYID"]).text().to_owned());
        let cluster = Self {
            ids: ids.collect(),
            nodes,
        };

        cluster.assign_slots();
        cluster.introduce();
        cluster.replicate();
        cluster.wait_until_whole();
        cluster
    }

    fn assign_slots(&self) {
        for (number, node) in self.nodes.iter().take(MASTERS).enumerate() {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
            let first = number * SLOTS / MASTERS;
            let end = (number + 1) * SLOTS / MASTERS;
            let slots: Vec<String> = (first..end).map(|slot| slot.to_string()).collect();
            let request: Vec<&str> = ["CLUSTER", "ADDSLOTS"]
                .into_iter()
                .chain(slots.iter().map(String::as_str))
                .collect();
            node.command(&request);
        }
    }

    fn introduce(&self) {
        for node in &self.nodes[1..] {
            let port = node.announced_port().to_string();
            self.nodes[0].command(&["CLUSTER", "MEET", "127.0.0.1", &port]);
        }
        until("all nodes to know each other", || {
            let count = format!("cluster_known_nodes:{}\r\n", self.nodes.len());
            let knows = |node: &Redis| node.command(&["CLUSTER", "INFO"]).text().contains(&count);
            Ok(self.nodes.iter().all(knows).then_some(()))
        })
        .expect("the nodes meet");
    }

    fn replicate(&self) {
        for replica in MASTERS..self.nodes.len() {
            until("a node to become a replica", || {
                let request = ["CLUSTER", "REPLICATE", &self.ids[replica - MASTERS]];
                Ok((!self.nodes[replica].request(&request).is_error()).then_some(()))
            })
            .expect("the node knows its master");
        }
    }

    /// Waits until all nodes run, agree on the masters, and each replica follows its master.
    pub fn wait_until_whole(&self) {
        until("the cluster to be whole", || {
            Ok(self.nodes.iter().all(sees_whole_cluster).then_some(()))
        })
        .expect("the cluster recovers");
    }

    /// The URL for clients: `redis+cluster://A,B,C`, with the first three nodes.
    #[must_use]
    pub fn url(&self) -> String {
        let addresses: Vec<String> = self.nodes[..MASTERS].iter().map(Redis::address).collect();
        format!("redis+cluster://{}", addresses.join(","))
    }

    /// The URL for clients with TLS: `rediss+cluster://HOST:A,HOST:B,HOST:C`.
    #[must_use]
    pub fn tls_url(&self, host: &str) -> String {
        let masters = self.nodes[..MASTERS].iter();
        let addresses: Vec<String> = masters
            .map(|node| format!("{host}:{}", node.tls_port()))
            .collect();
        format!("rediss+cluster://{}", addresses.join(","))
    }

    /// The number of nodes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns one of the nodes.
    #[must_use]
    pub fn node(&self, index: usize) -> &Redis {
        &self.nodes[index]
    }

    /// Returns one of the nodes, so that a test can kill it.
    pub fn node_mut(&mut self, index: usize) -> &mut Redis {
        &mut self.nodes[index]
    }

    /// Returns the slot of a key.
    #[must_use]
    pub fn slot_of(&self, key: &str) -> u16 {
        let reply = self.reply(&["CLUSTER", "KEYSLOT", key]);
        u16::try_from(reply.int()).expect("a slot is below 16384")
    }

    /// Returns the master that has a slot, as a majority of the nodes sees it.
    #[must_use]
    pub fn master_of(&self, slot: u16) -> usize {
        self.agreed_master(slot, |_| true)
    }

    /// Waits until another node than `old` is the master of a slot, and returns it.
    #[must_use]
    pub fn master_other_than(&self, old: usize, slot: u16) -> usize {
        self.agreed_master(slot, |node| node != old)
    }

    /// Whether a node is a master with slots, as it sees itself.
    #[must_use]
    pub fn has_slots(&self, node: usize) -> bool {
        let reply = self.nodes[node].try_request(&["CLUSTER", "SLOTS"]);
        reply.is_ok_and(|reply| {
            let mut ranges = reply.list().iter().map(Reply::list);
            ranges.any(|range| range[2].list()[2].text() == self.ids[node])
        })
    }

    /// Exchanges the roles of a master and its replica, which both run. Returns the new master.
    ///
    /// The master gives up after five seconds on a busy machine, so the request is repeated.
    #[must_use]
    pub fn hand_over_master(&self, old: usize, slot: u16) -> usize {
        const TRIES: usize = 10;
        const TRY_MAX: Duration = Duration::from_secs(6);
        let port = format!("master_port:{}\r\n", self.nodes[old].announced_port());
        let follows = |node: &&Redis| node.info("replication").contains(&port);
        for _ in 0..TRIES {
            if let Some(replica) = self.nodes.iter().find(follows) {
                // The replica may have taken over already.
                let _refused = replica.request(&["CLUSTER", "FAILOVER"]);
            }
            let new = until_within(TRY_MAX, "a replica to take over", || {
                Ok(self
                    .seen(&self.nodes[old], slot)
                    .filter(|node| *node != old))
            });
            if let Ok(new) = new {
                return new;
            }
        }
        panic!("no replica takes over from a living master");
    }

    fn agreed_master(&self, slot: u16, counts: impl Fn(usize) -> bool) -> usize {
        until("the nodes to agree on a master", || {
            let seen: Vec<usize> = self
                .nodes
                .iter()
                .filter_map(|node| self.seen(node, slot))
                .collect();
            let votes = |node: usize| seen.iter().filter(|seen| **seen == node).count();
            let mut nodes = 0..self.nodes.len();
            Ok(nodes.find(|node| counts(*node) && votes(*node) > self.nodes.len() / 2))
        })
        .expect("a slot has a master")
    }

    fn seen(&self, node: &Redis, slot: u16) -> Option<usize> {
        let reply = node.try_request(&["CLUSTER", "SLOTS"]).ok()?;
        let slot = i64::from(slot);
        let mut ranges = reply
            .list()
            .iter()
            .map(Reply::list)
            .filter(|range| range[0].int() <= slot && slot <= range[1].int());
        let id = ranges.next()?[2].list()[2].text().to_owned();
        self.ids.iter().position(|known| *known == id)
    }

    /// Moves a slot with its keys to another master, key by key, as `redis-cli --cluster reshard`
    /// does.
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) {
        self.begin_move(slot, from, to);
        while let Some(key) = self.key_in(from, &slot.to_string()) {
            self.move_key(&key, from, to);
        }
        for node in [to, from] {
            self.set_slot(node, slot, &["NODE", &self.ids[to]]);
        }

        // The others learn of it from each other. A move that begins earlier asks the old master, or
        // gives the next one an epoch that is too low. Then no master serves the slot.
        until("every node to know the new master", || {
            let mut seen = self.nodes.iter().map(|node| self.seen(node, slot));
            Ok(seen.all(|seen| seen == Some(to)).then_some(()))
        })
        .expect("the nodes are connected");
    }

    /// Begins to move a slot, and moves no key. Until the move ends, both masters refuse requests
    /// about several keys of the slot.
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        self.set_slot(to, slot, &["IMPORTING", &self.ids[from]]);
        self.set_slot(from, slot, &["MIGRATING", &self.ids[to]]);
    }

    fn set_slot(&self, node: usize, slot: u16, words: &[&str]) {
        let slot = slot.to_string();
        let request = [&["CLUSTER", "SETSLOT", slot.as_str()], words].concat();
        self.nodes[node].command(&request);
    }

    /// Takes a slot from its master. Returns when no node knows a master of the slot.
    pub fn take_slot(&self, slot: u16) {
        let number = slot.to_string();
        let request = ["CLUSTER", "DELSLOTS", &number];
        until("a slot to have no master", || {
            let knows = |node: &&Redis| self.seen(node, slot).is_some();
            let knowing: Vec<&Redis> = self.nodes.iter().filter(knows).collect();
            for node in &knowing {
                // A node may learn from a late message of another one that the slot has a master.
                let _refused = node.request(&request);
            }
            Ok(knowing.is_empty().then_some(()))
        })
        .expect("every node forgets the master");
    }

    fn key_in(&self, node: usize, slot: &str) -> Option<String> {
        let reply = self.nodes[node].command(&["CLUSTER", "GETKEYSINSLOT", slot, "1"]);
        reply.texts().first().map(|key| (*key).to_owned())
    }

    /// Moves a key of a slot whose move has begun.
    pub fn move_key(&self, key: &str, from: usize, to: usize) {
        let port = self.nodes[to].announced_port().to_string();
        let request = ["MIGRATE", "127.0.0.1", &port, key, "0", "5000"];
        self.nodes[from].command(&request);
    }

    fn reply(&self, words: &[&str]) -> Reply {
        let replies = self
            .nodes
            .iter()
            .filter_map(|node| node.try_request(words).ok());
        replies.into_iter().next().expect("a node runs")
    }
}

fn sees_whole_cluster(node: &Redis) -> bool {
    let Ok(info) = node.try_request(&["CLUSTER", "INFO"]) else {
        return false;
    };
    let Ok(nodes) = node.try_request(&["CLUSTER", "NODES"]) else {
        return false;
    };

    let masters = nodes.text().lines().filter(|line| line.contains("master"));
    let with_slots = masters.filter(|line| line.split(' ').count() > 8).count();
    let replication = node.info("replication");
    let follows =
        replication.contains("role:master") || replication.contains("master_link_status:up");
    let is_complete =
        info.text().contains("cluster_state:ok") && info.text().contains("cluster_slots_ok:16384");
    let is_quiet = !nodes.text().contains("fail") && !nodes.text().contains("handshake");
    is_complete && is_quiet && follows && with_slots == MASTERS
}
