//! Redisson's own locks and leasehold, on the master that sentinels name.

use anyhow::{Context, Result, ensure};
use lab::{RedissonPeer as Peer, Testbed, until};
use lab_servers::{Redis, Sentinels};

use super::{WATCHDOG, cycling};
use crate::WORKER;
use crate::redis_locks::{contend, cycles};

fn peer(group: &Sentinels) -> Result<Peer> {
    let sentinels = (0..3).map(|number| format!("redis://{}", group.sentinel(number).address()));
    let sentinels: Vec<String> = sentinels.collect();
    Peer::start_at(&sentinels.join(","), WATCHDOG, "")
}

fn url(group: &Sentinels) -> String {
    format!("{}?dialect=redisson&{}", group.url(), group.settings())
}

#[test]
fn redisson_and_leasehold_share_a_lock_on_sentinel() -> Result<()> {
    let group = Sentinels::of(&Redis::setup(), &Redis::setup());
    let cycles = cycles()?;
    contend(&url(&group), "a", cycles, || {
        Ok(cycling(
            peer(&group)?,
            format!("cycle lock a {cycles}"),
            cycles,
        ))
    })
}

/// After a failover both sides agree on the holder, through the new master.
#[test]
fn redisson_and_leasehold_follow_a_failover() -> Result<()> {
    let mut group = Sentinels::start();
    let mut peer = peer(&group)?;
    let testbed = Testbed::at(WORKER, &url(&group))?;
    peer.expect("try lock a", "true")?;
    let old = group.master();
    for replica in (0..group.count()).filter(|server| *server != old) {
        group.server(replica).in_step_with(group.server(old));
    }

    group.server_mut(old).kill();
    let _new = group.master_other_than(old);
    until("a reply of the new master", || {
        let tried = testbed.run(testbed.locks().mutex("a").try_acquire());
        let Ok(granted) = tried else { return Ok(None) };
        ensure!(granted.is_err(), "two hold at once");
        Ok(Some(()))
    })?;

    until("Redisson to release on the new master", || {
        let reply = peer.request("unlock lock a")?;
        Ok((!reply.starts_with("error")).then_some(()))
    })?;
    let guard = testbed.run(testbed.locks().mutex("a").acquire())?;
    let refused = peer.request("try lock a").context("a reply")?;
    ensure!(refused == "false", "two hold at once: {refused}");
    Ok(testbed.run(guard.release())?)
}
