//! The guarantees that only Redlock has, on real servers.
#![cfg(feature = "redis")]
#![allow(missing_docs)]

mod clocks;
mod masters;
mod opening;
mod voting;

use std::time::{Duration, Instant};

use lab_servers::Redis;
use leasehold::{Error, Locks, ServerStatus};

const DEADLINE: Duration = Duration::from_secs(30);
/// The votes of new masters do not count for this time.
const SHORT: &str = "longest-lease=500ms";

/// Starts this number of masters. Returns them and their addresses.
fn start(count: usize) -> (Vec<Redis>, Vec<String>) {
    let masters: Vec<Redis> = (0..count).map(|_| Redis::start()).collect();
    let hosts = masters.iter().map(Redis::address).collect();
    (masters, hosts)
}

async fn open(hosts: &[String], settings: &str) -> Result<Locks, Error> {
    leasehold::open(&format!("redlock://{}?{settings}", hosts.join(","))).await
}

async fn wait_until_all_vote(locks: &Locks) {
    let begun = Instant::now();
    loop {
        let acquired = locks
            .mutex("all")
            .lease(Duration::from_millis(500))
            .try_acquire()
            .await;
        if let Ok(Ok(held)) = acquired {
            let servers = locks
                .inspect("all")
                .await
                .expect("a quorum is there")
                .servers;
            let votes = |server: &&ServerStatus| {
                server
                    .holder
                    .is_some_and(|(_, token)| token == held.token())
            };
            let all_vote = servers.iter().filter(votes).count() == servers.len();
            held.release().await.expect("released");
            if all_vote {
                return;
            }
        }
        assert!(begun.elapsed() < DEADLINE, "a master does not vote");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
