//! Only the claim that holds can renew or release, on every store.
//!
//! Shows S6.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::backends::{BACKENDS, Backend};
use lab::faults::Requirement;
use lab::{Grants, StaleClaim, Testbed, open_store};
use lab_servers::Redis;
use leasehold::Name;

use super::WORKER;

/// So many stores are checked at a time, because each waits for its servers most of the time.
const AT_A_TIME: usize = 2;
/// The end of the key with the permits of a semaphore of Redisson.
const PERMITS: &str = ":timeout";

/// The ended claim and the holder belong to one client, which still knows both. A time to live
/// that is longer after the renewal shows that the server extended the lease of the holder.
#[test]
fn ended_claim_of_the_same_client_changes_nothing() -> Result<()> {
    for backends in BACKENDS.chunks(AT_A_TIME) {
        thread::scope(|scope| {
            let start = |backend| scope.spawn(move || changes_nothing_on(backend));
            let checks: Vec<_> = backends.iter().map(|backend| start(*backend)).collect();
            let mut outcomes = checks.into_iter().map(thread::ScopedJoinHandle::join);
            outcomes.try_for_each(|outcome| outcome.expect("a check does not panic"))
        })?;
    }
    Ok(())
}

fn changes_nothing_on(backend: &Backend) -> Result<()> {
    let testbed = (backend.start)(WORKER, Requirement::None)?;
    let times = testbed
        .run(times_to_live(&testbed))
        .with_context(|| backend.name)?;

    for (before, after) in times {
        ensure!(
            0 < after && after <= before,
            "{backend}: {before} ms before, and {after} ms after"
        );
    }
    Ok(())
}

/// In milliseconds: how long each key of the lock exists before and after the intrusion, and for a
/// semaphore of Redisson the end of each permit. Empty if the store has no such keys.
async fn times_to_live(testbed: &Testbed) -> Result<Vec<(i64, i64)>> {
    // Some stores grant nothing during a quarantine, and an acquire waits for its end.
    let locks = leasehold::open(&testbed.url()).await?;
    let lock = locks.mutex("owner").lease(Duration::from_secs(1));
    // On a busy machine a replica may confirm the first grant too late.
    let held = loop {
        match lock.acquire().await {
            Err(error) if error.is_unavailable() => {}
            acquired => break acquired?,
        }
    };
    held.release().await?;

    let store = open_store(&testbed.url()).await?;
    let name = Name::parse("owner")?;
    let stale = StaleClaim::make(&*store, &name, Grants::Kept)
        .await?
        .context("the store did not grant the claims")?;
    let is_held = async || Ok::<_, anyhow::Error>(store.inspect(&name).await?.holders().count());

    let before = keys_with_times(testbed);
    ensure!(is_held().await? == 1, "the second claim does not hold");
    ensure!(stale.intrude(&*store).await?, "a request got no reply");
    let after = keys_with_times(testbed);

    ensure!(is_held().await? == 1, "the second claim was released");
    ensure!(stale.end(&*store).await, "the second claim was gone");
    let same = before.iter().zip(after);
    same.map(|((key, before), (other, after))| {
        ensure!(*key == other, "the keys changed: {key}, {other}");
        Ok((*before, after))
    })
    .collect()
}

fn keys_with_times(testbed: &Testbed) -> Vec<(String, i64)> {
    let mut times = Vec::new();
    for server in testbed.servers_of::<Redis>() {
        // A node of a cluster lists keys, and may refuse other requests about them.
        if server.info("cluster").contains("cluster_enabled:1") {
            continue;
        }
        let reply = server.command(&["KEYS", "*owner*"]);
        let mut keys: Vec<String> = reply.texts().into_iter().map(str::to_owned).collect();
        keys.sort();
        let is_semaphore = keys.iter().any(|key| key.ends_with(PERMITS));
        for key in keys {
            if key.ends_with(PERMITS) {
                times.extend(ends_of_permits(server, &key));
            } else if !is_semaphore {
                let time = server.command(&["PTTL", &key]).int();
                times.push((key, time));
            }
        }
    }
    times
}

/// The permits that are held, each with the end of its lease.
fn ends_of_permits(server: &Redis, key: &str) -> Vec<(String, i64)> {
    let reply = server.command(&["ZRANGE", key, "0", "-1", "WITHSCORES"]);
    let permits: Vec<String> = reply.texts().into_iter().map(str::to_owned).collect();

    permits
        .chunks(2)
        .map(|pair| (pair[0].clone(), pair[1].parse().expect("it is a time")))
        .collect()
}
