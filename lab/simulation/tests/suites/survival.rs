//! Holds survive servers that are unreachable or stalled for less than the validity.
//!
//! Each store has 20 holders, each with its own client. Their renewals are due at different times,
//! so that some of them are about to renew when the outage begins, which is the worst moment. The
//! tests of the command, `crates/leasehold-cli/tests/command/outage.rs`, show the same on real
//! servers, and on ZooKeeper.
//!
//! Shows G-24.

use std::time::Duration;

use futures_util::future::try_join_all;
use lab_simulation::testbed::{Redis, Wire};
use leasehold::{Guard, RenewalStatus};
use tokio::time::sleep;

use super::clients::cut_off;

const HOLDERS: u32 = 20;

/// The guarantee is 0.6. The library alone survives slightly more, because it does not have to stop
/// a command in time.
const OUTAGE: f64 = 0.7;

const LEASE: Duration = Duration::from_secs(10);

/// The scheme, the number of servers and the settings of each store, of which a hold is valid for ten
/// seconds.
const STORES: [(&str, usize, &str); 6] = [
    ("redis", 1, "crash-grace=10s"),
    ("redis", 1, "crash-grace=off"),
    ("redis", 1, "dialect=plain"),
    ("redis", 1, "dialect=redisson"),
    ("redlock", 3, "quarantine=off"),
    ("redlock", 3, "dialect=classic&quarantine=off"),
];

/// Holds a lock in each of many clients through an outage, and checks that none is lost.
async fn holds_survive(url: &str, begin: impl Fn(), end: impl Fn()) {
    let acquires = (0..HOLDERS).map(|number| hold(url, number));
    let guards = try_join_all(acquires).await.expect(url);
    sleep(LEASE / 2).await;

    begin();
    sleep(LEASE.mul_f64(OUTAGE)).await;
    end();

    sleep(LEASE / 2).await;
    for guard in guards {
        guard.check().expect(url);
        assert_eq!(guard.renewal(), RenewalStatus::OnTime, "{url}");
        guard.release().await.expect(url);
    }
}

/// The holders begin one after another within a third of the validity.
async fn hold(url: &str, number: u32) -> leasehold::Result<Guard> {
    sleep(LEASE / 3 * number / HOLDERS).await;
    let locks = leasehold::open(url).await?;
    let lock = locks.mutex(format!("job-{number}")).lease(LEASE);
    lock.acquire().await
}

/// Runs a test with the servers of each store, each behind a wire.
async fn on_each_store(begin: impl Fn(&Redis, &Wire), end: impl Fn(&Redis, &Wire)) {
    for (scheme, count, settings) in STORES {
        let servers: Vec<(Redis, Wire)> = (0..count)
            .map(|_| {
                let server = Redis::start();
                let wire = Wire::to(server.address());
                (server, wire)
            })
            .collect();
        let hosts: Vec<String> = servers
            .iter()
            .map(|(_, wire)| wire.url_of("redis").replace("redis://", ""))
            .collect();

        let url = format!("{scheme}://{}?{settings}", hosts.join(","));
        let each = |act: &dyn Fn(&Redis, &Wire)| {
            for (server, wire) in &servers {
                act(server, wire);
            }
        };
        holds_survive(&url, || each(&begin), || each(&end)).await;
    }
}

#[tokio::test]
async fn holds_survive_stalled_servers() {
    on_each_store(|server, _| server.pause(), |server, _| server.resume()).await;
}

#[tokio::test]
async fn holds_survive_broken_connections() {
    on_each_store(|_, wire| cut_off(wire), |_, wire| wire.refuse(false)).await;
}
