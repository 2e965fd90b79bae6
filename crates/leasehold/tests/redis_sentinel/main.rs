//! The Redis store on a master that sentinels name, through real failovers.
#![cfg(feature = "redis")]
#![allow(missing_docs)]

mod failover;
mod opening;
mod quarantine;

use std::time::Duration;

use lab_servers::{Sentinels, Wire};
use leasehold::Locks;

/// How long a failover of the lab's sentinels may take on a busy machine.
const FAILOVER_MAX: Duration = Duration::from_secs(30);

async fn open(group: &Sentinels, settings: &str) -> Locks {
    let url = format!("{}?{}&{settings}", group.url(), group.settings());
    leasehold::open(&url).await.expect("the store opens")
}

/// A client that can be cut off from all sentinels and all servers.
struct Remote {
    wires: Vec<Wire>,
    locks: Locks,
}

impl Remote {
    async fn open(group: &Sentinels, settings: &str) -> Self {
        let of_sentinels = (0..3).map(|number| Wire::to(group.sentinel(number).address()));
        let of_servers = (0..group.count()).map(|number| Wire::to(group.server(number).address()));
        let wires: Vec<Wire> = of_sentinels.chain(of_servers).collect();

        let sentinels: Vec<String> = wires[..3].iter().map(Wire::address).collect();
        let mut addresses = wires[3..].iter().map(Wire::address);
        let reached = group.settings_with(|_| addresses.next().expect("a wire for each server"));
        let url = group.url();
        let (_, master) = url.rsplit_once('/').expect("the URL names the master");
        let url = format!(
            "redis+sentinel://{}/{master}?{reached}&{settings}",
            sentinels.join(",")
        );
        let locks = leasehold::open(&url).await.expect("the store opens");
        Self { wires, locks }
    }

    /// Freezes what the client sends and receives.
    fn freeze(&self, frozen: bool) {
        for wire in &self.wires {
            wire.freeze(frozen);
        }
    }
}
