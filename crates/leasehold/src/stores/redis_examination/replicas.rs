//! The role of a server and its replicas.

use super::{Facts, Kind};
use crate::examination::Finding;
use crate::stores::redis_client::Address;

pub(super) fn findings(facts: &Facts, kind: Kind, address: &Address) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_cluster = kind == Kind::Cluster;
    let is_replica = facts.info("role").is_some_and(|role| role != "master");
    // A client of a cluster finds the masters by any node.
    if is_replica && is_cluster {
        return findings;
    }
    if is_replica {
        findings.push(Finding::danger(
            "not-a-master",
            "the server is a replica, which accepts no writes",
            "name its master in the URL",
        ));
        return findings;
    }
    if facts.info("cluster_enabled") == Some("1") && !is_cluster {
        findings.push(Finding::danger(
            "cluster",
            "the server is a node of a cluster, and other nodes have a part of the locks",
            "write redis+cluster:// instead of redis://",
        ));
    }

    let required = u64::from(address.settings.replicas);
    let Some(connected) = facts.number("connected_slaves") else {
        return findings;
    };
    if connected < required {
        let message =
            format!("replicas={required}, and the server has {connected}: no grant counts");
        let remedy = "bring the replicas back, or lower replicas= in the URL";
        findings.push(Finding::danger("too-few-replicas", message, remedy));
    }
    if connected > 0 && required == 0 {
        findings.push(Finding::warning(
            "replicas-unused",
            "a failover loses the grants that the replica has not received yet",
            "write ?replicas=1, or use redlock:// or zookeeper:// if a failover is possible",
        ));
    }
    let is_guarded = min_replicas(facts).is_none_or(|min| min > 0);
    if connected > 0 && !is_guarded {
        findings.push(Finding::warning(
            "min-replicas",
            "a master that is cut off from its replicas keeps granting locks after a failover",
            "CONFIG SET min-replicas-to-write 1",
        ));
    }
    findings
}

fn min_replicas(facts: &Facts) -> Option<u64> {
    facts.setting("min-replicas-to-write")?.parse().ok()
}
