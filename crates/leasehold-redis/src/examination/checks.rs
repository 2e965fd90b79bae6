//! The checks of a server: the risks to locks, and their remedies.

use super::{Facts, Kind};
use leasehold_core::Severity;
use leasehold_core::Severity::{Danger, Warning};
use leasehold_core::internal::examination::Check;

/// The findings have this order.
pub(super) const CHECKS: &[Check<Facts>] = &[
    Check::danger("eviction", |facts: &Facts| eviction(facts, Danger))
        .message("the server evicts keys when its memory is full ({})")
        .remedy(NO_EVICTION),
    Check::warning("eviction", |facts: &Facts| eviction(facts, Warning))
        .message("the server would evict keys ({}) if maxmemory were set")
        .remedy(NO_EVICTION),
    Check::danger("no-persistence", |facts: &Facts| {
        facts.other_than("1", "aof_enabled")
    })
    .message(
        "the server keeps no log of its writes: a restart forgets holds, and grants them \
         again",
    )
    .remedy("set appendonly yes and appendfsync always, or use redlock:// or zookeeper://"),
    Check::warning("late-sync", late_sync)
        .message("the log of writes is synced {}: a crash of the machine forgets the last grants")
        .remedy("set appendfsync always"),
    Check::warning("timeout", |facts: &Facts| facts.number_in(1.., "timeout"))
        .message("the server closes a connection that is idle for {} s")
        .remedy("CONFIG SET timeout 0; tcp-keepalive ends the connections of crashed clients"),
    Check::warning("keepalive", |facts: &Facts| {
        facts.number_in(0..=0, "tcp-keepalive")
    })
    .message("the server keeps the connections of vanished machines forever")
    .remedy("CONFIG SET tcp-keepalive 60"),
    Check::warning("keepalive", |facts: &Facts| {
        facts.number_in(301.., "tcp-keepalive")
    })
    .message(
        "the server notices a vanished machine after {} s or later: until then its client \
         counts as alive",
    )
    .remedy("CONFIG SET tcp-keepalive 60"),
    Check::danger("maxclients", |facts: &Facts| connections(facts, Danger))
        .message("{} connections are in use")
        .remedy(MORE_CLIENTS),
    Check::warning("maxclients", |facts: &Facts| connections(facts, Warning))
        .message("{} connections are in use")
        .remedy(MORE_CLIENTS),
    Check::danger("not-a-master", single_replica)
        .message("the server is a replica, which accepts no writes")
        .remedy("name its master in the URL"),
    Check::danger("cluster", node_of_cluster)
        .message("the server is a node of a cluster, and other nodes have a part of the locks")
        .remedy("write redis+cluster:// instead of redis://"),
    Check::danger("too-few-replicas", too_few_replicas)
        .message("replicas={}: no grant counts")
        .remedy("bring the replicas back, or lower replicas= in the URL"),
    Check::warning("replicas-unused", unused_replicas)
        .message("a failover loses the grants that the replica has not received yet")
        .remedy("write ?replicas=1, or use redlock:// or zookeeper:// if a failover is possible"),
    Check::warning("min-replicas", grants_without_replicas)
        .message("a master that is cut off from its replicas keeps granting locks after a failover")
        .remedy("CONFIG SET min-replicas-to-write 1"),
];

const NO_EVICTION: &str =
    "CONFIG SET maxmemory-policy noeviction, or a server of its own for locks";
const MORE_CLIENTS: &str =
    "CONFIG SET maxclients to a larger number; leasehold uses two for each client";

/// All keys of locks expire, so every policy but `noeviction` may delete them.
fn eviction(facts: &Facts, severity: Severity) -> Option<String> {
    let policy = facts.other_than("noeviction", "maxmemory_policy")?;
    let is_limited = facts.number_in(1.., "maxmemory").is_some();
    let found = if is_limited { Danger } else { Warning };
    (found == severity).then_some(policy)
}

fn late_sync(facts: &Facts) -> Option<String> {
    let synced = facts.other_than("always", "appendfsync")?;
    (facts.value("aof_enabled")? == "1").then_some(synced)
}

fn connections(facts: &Facts, severity: Severity) -> Option<String> {
    let clients = facts.number("connected_clients")?;
    let limit = facts.number("maxclients")?;
    let is_full = clients + 2 > limit;
    let found = if is_full { Danger } else { Warning };
    let is_risk = is_full || clients * 5 > limit * 4;
    (is_risk && found == severity).then(|| format!("{clients} of {limit}"))
}

fn replica_role(facts: &Facts) -> Option<String> {
    facts.other_than("master", "role")
}

/// A client of a cluster finds the masters by any node.
fn single_replica(facts: &Facts) -> Option<String> {
    replica_role(facts).filter(|_| facts.kind != Kind::Cluster)
}

fn node_of_cluster(facts: &Facts) -> Option<String> {
    let is_single = facts.kind != Kind::Cluster && replica_role(facts).is_none();
    (is_single && facts.value("cluster_enabled")? == "1").then(String::new)
}

/// Returns the number of replicas of a master, and the number that the URL requires.
fn replicas(facts: &Facts) -> Option<(u64, u64)> {
    let required = facts.address.settings.replicas;
    let connected = facts.number("connected_slaves")?;
    replica_role(facts)
        .is_none()
        .then_some((connected, required.into()))
}

fn too_few_replicas(facts: &Facts) -> Option<String> {
    let (connected, required) = replicas(facts)?;
    (connected < required).then(|| format!("{required}, and the server has {connected}"))
}

fn unused_replicas(facts: &Facts) -> Option<String> {
    let (connected, required) = replicas(facts)?;
    (connected > 0 && required == 0).then(String::new)
}

fn grants_without_replicas(facts: &Facts) -> Option<String> {
    let (connected, _) = replicas(facts)?;
    (connected > 0 && facts.number("min-replicas-to-write")? == 0).then(String::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Topology;

    fn facts(info: &str, settings: &[(&str, &str)]) -> Facts {
        let settings = settings
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let topology = Topology::parse("redis://localhost?crash-grace=2s").expect("a valid URL");
        let Topology::Single(address) = topology else {
            panic!("the URL names one server");
        };
        Facts {
            kind: Kind::Redis,
            address,
            info: Some(info.to_owned()),
            config: Some(settings.collect()),
            clock: None,
        }
    }

    /// The severity and the code of each finding.
    fn found(facts: &Facts) -> Vec<(Severity, &'static str)> {
        let findings = CHECKS.iter().filter_map(|check| check.finding(facts));
        findings
            .map(|finding| (finding.severity, finding.code))
            .collect()
    }

    #[test]
    fn used_connections_are_a_warning_before_they_are_a_danger() {
        let found = |used| {
            let info = format!("connected_clients:{used}\r\n");
            found(&facts(&info, &[("maxclients", "100")]))
        };
        assert_eq!(found(80), []);
        assert_eq!(found(81), [(Warning, "maxclients")]);
        assert_eq!(found(98), [(Warning, "maxclients")]);
        assert_eq!(found(99), [(Danger, "maxclients")]);
    }
}
