//! Holds survive servers that are unreachable or stalled for less than the validity.
//!
//! Each store has 20 holders, each with its own client. Their renewals are due at different times,
//! so that some of them are about to renew when the outage begins, which is the worst moment. The
//! tests of the command, `crates/leasehold-cli/tests/command/outage.rs`, show the same on real
//! servers that stall, and on ZooKeeper.
//!
//! Shows G-24.

use std::time::Duration;

use futures_util::future::try_join_all;
use lab_redis_model::Cluster;
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

/// A server, or a cluster with one master, and its URL.
fn with_one_master(is_cluster: bool) -> (Redis, String) {
    if !is_cluster {
        let server = Redis::start();
        let url = server.url();
        return (server, url);
    }

    let group = Cluster::start(&[["master", "replica"]], Duration::from_millis(500));
    let [server, _] = ["master", "replica"]
        .map(|name| group.host(name).map(|host| Redis::of(host, name)))
        .map(|server| server.expect("it is of the cluster"));
    (server, "redis+cluster://master".to_owned())
}

/// A request renews both locks, or each its own.
///
/// Shows G-01, G-24.
#[tokio::test]
async fn damaged_key_ends_the_hold_of_its_own_lock_only() {
    const GRACE: Duration = Duration::from_secs(2);
    /// How long pings renew a hold between two scripts, in a lease of 30 s.
    const PINGS_MAX: Duration = Duration::from_secs(10);
    let apart = GRACE * 3 / 2;
    for (is_cluster, between) in [(false, Duration::ZERO), (false, apart), (true, apart)] {
        let (server, url) = with_one_master(is_cluster);
        let url = format!("{url}?crash-grace=2s");
        let locks = leasehold::open(&url).await.expect(&url);
        let damaged = locks.mutex("a").acquire().await.expect("free");
        sleep(between).await;
        let sound = locks.mutex("b").acquire().await.expect("free");

        server.command(&["DEL", "leasehold:{a}"]);
        server.command(&["HSET", "leasehold:{a}", "field", "foreign"]);
        sleep(PINGS_MAX + GRACE).await;
        damaged.check().expect_err(&url);
        sleep(Duration::from_secs(40)).await;
        sound.release().await.expect(&url);
    }
}
