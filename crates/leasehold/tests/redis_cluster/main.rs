//! The Redis store on a cluster: failovers, moving slots, and masters that are down.
#![cfg(feature = "redis")]
#![allow(missing_docs)]

mod masters;
mod opening;
mod slots;
#[cfg(feature = "tls")]
mod tls;

use std::time::Duration;

use lab_servers::Cluster;
use leasehold::{Guard, Locks};

/// How long a failover of the lab's cluster may take on a busy machine.
const FAILOVER_MAX: Duration = Duration::from_secs(30);

async fn open(cluster: &Cluster, settings: &str) -> Locks {
    let url = format!("{}?{settings}", cluster.url());
    leasehold::open(&url).await.expect("the store opens")
}

fn slot_of(cluster: &Cluster, name: &str) -> u16 {
    cluster.slot_of(&format!("leasehold:{{{name}}}"))
}

/// Returns names whose locks are on different masters, one for each.
fn name_per_master(cluster: &Cluster) -> [String; 3] {
    let mut masters = Vec::new();
    let mut names = (0..).map(|number| format!("n{number}"));
    std::array::from_fn(|_| {
        let is_new = |name: &String| {
            let master = cluster.master_of(slot_of(cluster, name));
            let is_new = !masters.contains(&master);
            masters.extend(is_new.then_some(master));
            is_new
        };
        names.find(is_new).expect("each master has slots")
    })
}

async fn acquire(locks: &Locks, name: &str) -> Guard {
    let lock = locks.mutex(name);
    let acquired = tokio::time::timeout(FAILOVER_MAX, lock.acquire()).await;
    acquired.expect("granted in time").expect("granted")
}
