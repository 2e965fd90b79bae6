//! Three sentinels, a master and two replicas.

use std::time::Duration;

use super::{Redis, Reply, Setup};
use crate::{Wire, until};

/// Three sentinels that watch three servers: a master and two replicas.
///
/// Sentinels and replicas reach each server through a wire, whose address the server announces. So
/// a test can [partition](Self::partition) a server from them while its clients still reach it.
/// Clients map the announced addresses, with the [`settings`](Self::settings) of their URL.
///
/// ```no_run
/// use lab_servers::Sentinels;
///
/// let mut group = Sentinels::start();
/// let old = group.master();
/// group.server_mut(old).kill();
/// assert_ne!(group.master_other_than(old), old);
/// group.rejoin(old);
/// ```
#[derive(Debug)]
pub struct Sentinels {
    watchers: Vec<Redis>,
    /// The wires to the servers, for sentinels and replicas.
    wires: Vec<Wire>,
    servers: Vec<Redis>,
}

/// The number of sentinels, and of servers.
const COUNT: usize = 3;
/// The name of the master in the URL.
const MASTER: &str = "main";
/// Without a reply for this time, a sentinel counts a server as down.
const DOWN_AFTER: Duration = Duration::from_secs(1);

impl Sentinels {
    /// Starts the servers with the usual set-up.
    #[must_use]
    pub fn start() -> Self {
        Self::of(&Redis::setup(), &Redis::setup())
    }

    /// Starts servers with one set-up, and sentinels with another.
    #[must_use]
    pub fn of(server: &Setup, sentinel: &Setup) -> Self {
        let servers: Vec<Redis> = (0..COUNT).map(|_| server.clone().start()).collect();
        let wires: Vec<Wire> = servers
            .iter()
            .map(|server| Wire::to(server.address()))
            .collect();
        for (server, wire) in servers.iter().zip(&wires) {
            server.set("replica-announce-ip", "127.0.0.1");
            server.set("replica-announce-port", &wire.port().to_string());
        }

        let mut group = Self {
            watchers: Vec::new(),
            wires,
            servers,
        };
        for replica in 1..COUNT {
            group.follow(replica, 0);
        }
        until("the replicas to be in sync", || {
            Ok(group.is_in_sync(0).then_some(()))
        })
        .expect("replicas follow a living master");
        group.watchers = (0..COUNT)
            .map(|_| group.sentinel_of(sentinel.clone()))
            .collect();
        group.wait_until_acquainted();
        group
    }

    fn sentinel_of(&self, setup: Setup) -> Redis {
        let watched = format!("monitor {MASTER} 127.0.0.1 {} 2", self.wires[0].port());
        let down_after = DOWN_AFTER.as_millis();
        let password = self.servers[0].spec.password.as_ref();
        let login = password.map(|password| format!("auth-pass {MASTER} {password}"));

        let mut setup = setup.sentinel().config("sentinel", &watched);
        for line in login.into_iter().chain([
            format!("down-after-milliseconds {MASTER} {down_after}"),
            format!("failover-timeout {MASTER} 3000"),
            format!("parallel-syncs {MASTER} 2"),
        ]) {
            setup = setup.config("sentinel", &line);
        }

        let sentinel = setup.start();
        // So a sentinel learns of the others, and of changed roles, without long pauses.
        sentinel.command(&["SENTINEL", "DEBUG", "info-period", "500"]);
        sentinel.command(&["SENTINEL", "DEBUG", "publish-period", "300"]);
        sentinel
    }

    /// Waits until each sentinel knows the others and both replicas.
    fn wait_until_acquainted(&self) {
        until("the sentinels to know each other", || {
            let is_complete = |sentinel: &Redis| {
                let has = |field: &str, value: &str| field_of(sentinel, field) == value;
                has("num-other-sentinels", "2") && has("num-slaves", "2")
            };
            Ok(self.watchers.iter().all(is_complete).then_some(()))
        })
        .expect("sentinels find each other through the master");
    }

    /// The URL for clients: `redis+sentinel://A,B,C/main`. The clients also need the
    /// [`settings`](Self::settings).
    #[must_use]
    pub fn url(&self) -> String {
        self.url_through("redis+sentinel://", Redis::address)
    }

    /// The URL for clients that reach each sentinel at the address that `reached` returns. `begin`
    /// is the URL up to the hosts.
    #[must_use]
    pub fn url_through(&self, begin: &str, reached: impl Fn(&Redis) -> String) -> String {
        let addresses: Vec<String> = self.watchers.iter().map(reached).collect();
        format!("{begin}{}/{MASTER}", addresses.join(","))
    }

    /// The setting with which clients reach the servers directly.
    #[must_use]
    pub fn settings(&self) -> String {
        self.settings_with(Redis::address)
    }

    /// The setting with which clients reach each server at the address that `reached` returns.
    #[must_use]
    pub fn settings_with(&self, mut reached: impl FnMut(&Redis) -> String) -> String {
        let pairs = self
            .wires
            .iter()
            .zip(&self.servers)
            .map(|(wire, server)| format!("{}={}", wire.address(), reached(server)));
        format!("address-map={}", pairs.collect::<Vec<_>>().join(","))
    }

    /// The number of servers.
    #[must_use]
    pub fn count(&self) -> usize {
        self.servers.len()
    }

    /// Returns one of the servers.
    #[must_use]
    pub fn server(&self, index: usize) -> &Redis {
        &self.servers[index]
    }

    /// Returns one of the servers, so that a test can kill it.
    pub fn server_mut(&mut self, index: usize) -> &mut Redis {
        &mut self.servers[index]
    }

    /// Returns one of the sentinels.
    #[must_use]
    pub fn sentinel(&self, index: usize) -> &Redis {
        &self.watchers[index]
    }

    /// Returns one of the sentinels, so that a test can kill it.
    pub fn sentinel_mut(&mut self, index: usize) -> &mut Redis {
        &mut self.watchers[index]
    }

    /// Waits until a majority of the sentinels names the same server, and returns it.
    #[must_use]
    pub fn master(&self) -> usize {
        self.named_master(|_| true)
    }

    /// Waits until a majority of the sentinels names a server other than `old`, and returns it.
    #[must_use]
    pub fn master_other_than(&self, old: usize) -> usize {
        self.named_master(|server| server != old)
    }

    fn named_master(&self, counts: impl Fn(usize) -> bool) -> usize {
        until("a majority of the sentinels to name a master", || {
            let named: Vec<usize> = self
                .watchers
                .iter()
                .filter_map(|s| self.named_by(s))
                .collect();
            let votes = |server: usize| named.iter().filter(|named| **named == server).count();
            Ok((0..COUNT).find(|server| counts(*server) && votes(*server) > COUNT / 2))
        })
        .expect("the sentinels complete a failover")
    }

    fn named_by(&self, sentinel: &Redis) -> Option<usize> {
        let request = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER];
        let reply = sentinel.try_request(&request).ok()?;
        let port = reply.texts().get(1)?.parse().ok();
        self.wires.iter().position(|wire| Some(wire.port()) == port)
    }

    /// Waits until a sentinel has promoted a replica and moves the others to it, and returns that
    /// sentinel.
    #[must_use]
    pub fn leader_of_a_failover(&self) -> usize {
        until("a sentinel to lead a failover", || {
            let leads = |s: &Redis| field_of(s, "failover-state") == "reconf_slaves";
            Ok(self.watchers.iter().position(leads))
        })
        .expect("the sentinels begin a failover")
    }

    /// Freezes what replicas and sentinels receive from a server and send to it.
    pub fn freeze(&self, server: usize, frozen: bool) {
        self.wires[server].freeze(frozen);
    }

    /// Cuts a server off from replicas and sentinels, while clients still reach it.
    pub fn partition(&self, server: usize) {
        self.wires[server].refuse(true);
        self.wires[server].partition();
    }

    /// Ends a partition.
    pub fn heal(&self, server: usize) {
        self.wires[server].refuse(false);
    }

    /// Restarts a killed server as a replica of the present master, and waits until all replicas
    /// have all data and the sentinels know them.
    pub fn rejoin(&mut self, index: usize) {
        self.freeze(index, false);
        self.wires[index].partition();
        let master = self.master_other_than(index);
        // A master that starts without data would empty a replica that still follows it.
        let follows = format!("replicaof 127.0.0.1 {}", self.wires[master].port());
        self.servers[index].spec.add_line(&follows);
        self.servers[index].restart();
        self.follow(index, self.master_other_than(index));
        self.wait_until_whole();
    }

    /// Waits until all servers follow one master and have its data, also as the sentinels see it.
    ///
    /// On a busy machine the sentinels may start another failover meanwhile.
    pub fn wait_until_whole(&self) {
        until("the group to be whole", || {
            let master = self.named_by(&self.watchers[0]);
            let is_in_sync = master.is_some_and(|master| self.is_in_sync(master));
            let is_whole = is_in_sync && self.watchers.iter().all(sees_healthy_servers);
            Ok(is_whole.then_some(()))
        })
        .expect("the sentinels complete a failover");
    }

    /// A sentinel that changes a role cuts the connections of the server, so requests are repeated.
    fn follow(&self, replica: usize, master: usize) {
        let port = self.wires[master].port().to_string();
        until("a server to become a replica", || {
            let request = ["REPLICAOF", "127.0.0.1", &port];
            let reply = self.servers[replica].try_request(&request);
            Ok(reply.is_ok_and(|reply| !reply.is_error()).then_some(()))
        })
        .expect("a living server becomes a replica");
    }

    /// Whether both replicas are connected to the master and have its present data.
    fn is_in_sync(&self, master: usize) -> bool {
        let port = format!("master_port:{}\r\n", self.wires[master].port());
        let mut replicas = (0..COUNT).filter(|server| *server != master);
        replicas.all(|replica| {
            let present = self.offset(master, "master_repl_offset:");
            let info = self.replication(replica);
            let follows = info.contains(&port) && info.contains("master_link_status:up");
            let copied = self.offset(replica, "slave_repl_offset:");
            follows && present.is_some() && copied >= present
        })
    }

    /// Returns what a server reports of its replication; empty without a reply.
    fn replication(&self, server: usize) -> String {
        let reply = self.servers[server].try_request(&["INFO", "replication"]);
        reply.map_or_else(|_| String::new(), |reply| reply.text().to_owned())
    }

    fn offset(&self, server: usize, key: &str) -> Option<u64> {
        let info = self.replication(server);
        let line = info.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|line| line.trim().parse().ok())
    }
}

/// Returns a field of what a sentinel knows about the master; empty if it does not reply.
fn field_of(sentinel: &Redis, field: &str) -> String {
    let reply = sentinel
        .try_request(&["SENTINEL", "MASTER", MASTER])
        .expect("a sentinel replies");
    field_in(&reply, field)
}

/// Returns a field of a list of fields and values; empty if it is missing.
fn field_in(fields: &Reply, field: &str) -> String {
    let texts = fields.texts();
    let value = texts.chunks(2).find(|pair| pair[0] == field);
    value.map_or_else(String::new, |pair| pair[1].to_owned())
}

fn sees_healthy_servers(sentinel: &Redis) -> bool {
    let replicas = sentinel.try_request(&["SENTINEL", "REPLICAS", MASTER]);
    let are_healthy = replicas.is_ok_and(|replicas| {
        let replicas = replicas.list();
        replicas.len() + 1 == COUNT && replicas.iter().all(is_healthy_replica)
    });
    are_healthy && field_of(sentinel, "flags") == "master"
}

fn is_healthy_replica(fields: &Reply) -> bool {
    field_in(fields, "flags") == "slave" && field_in(fields, "master-link-status") == "ok"
}
