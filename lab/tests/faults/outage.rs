//! How long a server may be unreachable or stalled without the loss of a lock.
//!
//! Each test has 50 holders, each with its own client. Their renewals are due at different times,
//! so that some of them are about to renew when the outage begins, which is the worst moment.
//! `LEASEHOLD_OUTAGE_RUNS` sets another number of holders.
//!
//! Shows G-24.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab::Server;
use lab_servers::{Redis, Wire, ZooKeeper};
use leasehold::{Guard, RenewalStatus};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// The guarantee is 0.6. The library alone survives slightly more, because it does not have to stop
/// a command in time.
const OUTAGE: f64 = 0.7;
/// A session is confirmed by the writes before the last, so that less of it is left.
const SESSION_OUTAGE: f64 = 0.6;

/// The limits of the holds.
#[derive(Clone, Copy)]
struct Bound {
    validity: Duration,
    lease: Duration,
    outage: f64,
}

impl Bound {
    const GRACE: Self = Self {
        validity: Duration::from_secs(5),
        lease: Duration::from_secs(30),
        outage: OUTAGE,
    };
    const LEASE: Self = Self {
        validity: Duration::from_secs(10),
        lease: Duration::from_secs(10),
        outage: OUTAGE,
    };
    const SESSION: Self = Self {
        validity: Duration::from_secs(10),
        lease: Duration::from_secs(30),
        outage: SESSION_OUTAGE,
    };
}

fn runs() -> u32 {
    std::env::var("LEASEHOLD_OUTAGE_RUNS").map_or(50, |runs| {
        runs.parse().expect("LEASEHOLD_OUTAGE_RUNS is a number")
    })
}

/// Holds a lock in each of many clients through an outage, and checks that none is lost.
fn holds_survive(url: &str, bound: Bound, begin: impl FnOnce(), end: impl FnOnce()) -> Result<()> {
    let runtime = Runtime::new()?;
    let guards = runtime.block_on(spread_holders(url, bound))?;
    sleep(bound.validity / 2);

    begin();
    sleep(bound.validity.mul_f64(bound.outage));
    end();

    let deadline = Instant::now() + bound.validity;
    while !guards.iter().all(is_confirmed) && Instant::now() < deadline {
        sleep(Duration::from_millis(20));
    }
    let lost: Vec<String> = guards
        .iter()
        .filter_map(|guard| guard.check().err())
        .map(|e| e.to_string())
        .collect();
    ensure!(
        lost.is_empty(),
        "{} of {} holds were lost: {:?}",
        lost.len(),
        guards.len(),
        lost.first()
    );
    ensure!(
        guards.iter().all(is_confirmed),
        "a hold is not renewed after the outage"
    );
    guards
        .into_iter()
        .try_for_each(|guard| runtime.block_on(guard.release()))?;
    Ok(())
}

/// One holder per client. The holders start one after another within a third of the validity, so
/// that their renewals and the confirmations of their sessions are due at different times.
async fn spread_holders(url: &str, bound: Bound) -> Result<Vec<Guard>> {
    let runs = runs();
    let spread = bound.validity / 3;
    let mut acquired = JoinSet::new();

    for run in 0..runs {
        let url = url.to_owned();
        acquired.spawn(async move {
            tokio::time::sleep(spread * run / runs).await;
            let locks = leasehold::open(&url).await?;
            locks
                .mutex(format!("job-{run}"))
                .lease(bound.lease)
                .acquire()
                .await
        });
    }
    let guards: leasehold::Result<Vec<_>> = acquired.join_all().await.into_iter().collect();

    Ok(guards?)
}

fn is_confirmed(guard: &Guard) -> bool {
    guard.renewal() == RenewalStatus::OnTime
}

/// Pauses servers while holders need them.
fn stalled_servers(servers: &[&dyn Server], url: &str, bound: Bound) -> Result<()> {
    holds_survive(
        url,
        bound,
        || {
            for server in servers {
                server.pause();
            }
        },
        || {
            for server in servers {
                server.resume();
            }
        },
    )
}

/// Resets all connections and refuses new ones while holders need them.
fn broken_connections(wires: &[Wire], url: &str, bound: Bound) -> Result<()> {
    holds_survive(
        url,
        bound,
        || {
            for wire in wires {
                wire.refuse(true);
                wire.partition();
            }
        },
        || {
            for wire in wires {
                wire.refuse(false);
            }
        },
    )
}

fn redlock_url(addresses: &[String]) -> String {
    format!("redlock://{}?quarantine=off", addresses.join(","))
}

#[test]
fn redis_locks_survive_stalled_server() -> Result<()> {
    let server = Redis::start();
    let url = format!("{}?crash-grace=5s", server.url());
    stalled_servers(&[&server], &url, Bound::GRACE)
}

#[test]
fn redis_locks_survive_broken_connections() -> Result<()> {
    let server = Redis::start();
    let wires = [Wire::to(server.address())];
    let url = format!("{}?crash-grace=5s", wires[0].url_of("redis"));
    broken_connections(&wires, &url, Bound::GRACE)
}

#[test]
fn redlock_locks_survive_stalled_servers() -> Result<()> {
    let servers = [(); 3].map(|()| Redis::start());
    let url = redlock_url(&servers.each_ref().map(Redis::address));
    let all = servers.each_ref().map(|server| server as &dyn Server);
    stalled_servers(&all, &url, Bound::LEASE)
}

#[test]
fn redlock_locks_survive_broken_connections() -> Result<()> {
    let servers = [(); 3].map(|()| Redis::start());
    let wires = servers.each_ref().map(|server| Wire::to(server.address()));
    let url = redlock_url(&wires.each_ref().map(Wire::address));
    broken_connections(&wires, &url, Bound::LEASE)
}

#[test]
fn zookeeper_locks_survive_stalled_server() -> Result<()> {
    let server = ZooKeeper::setup().tick(2_000).start();
    stalled_servers(&[&server], &server.url(), Bound::SESSION)
}

#[test]
fn zookeeper_locks_survive_broken_connections() -> Result<()> {
    let server = ZooKeeper::setup().tick(2_000).start();
    let wires = [Wire::to(server.address())];
    broken_connections(&wires, &wires[0].url_of("zookeeper"), Bound::SESSION)
}
