//! Servers that fail while a contender holds the lock.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use lab_servers::{Redis, Wire};

use super::super::testbed::{BaselineTestbed, Servers};
use super::super::{LEASE_MILLIS, LONG_MILLIS, NEVER_MILLIS};
use super::{
    Down, Failover, Granted, Lost, UNRESPONSIVE, claims_to_hold, is_granted, lost_at, millis, two,
};
use crate::baselines::{Client, Reply, Request};
use crate::now;

/// Replaces a server while a client holds the lock.
///
/// - One Redis server is replaced by a replica that has not received the lock.
/// - One of five masters restarts empty.
/// - The ZooKeeper leader is replaced while a third server lags.
///
/// # Errors
/// As [`crash`](super::crash), and if the servers do not execute a command.
pub fn failover(testbed: &mut BaselineTestbed) -> Result<Option<Failover>> {
    match testbed.servers() {
        Servers::None => return Ok(None),
        Servers::Redis(servers) if servers.len() == 1 => replica_is_promoted(testbed),
        Servers::Redis(_) => master_restarts_empty(testbed),
        Servers::Ensemble(_) => leader_is_killed(testbed),
    }
    .map(Some)
}

fn replica_is_promoted(testbed: &mut BaselineTestbed) -> Result<Failover> {
    let master = &testbed.servers().redis()[0];
    let link = Wire::to(master.address());
    let follows = format!("127.0.0.1 {}", link.port());
    let replica = Redis::setup().config("replicaof", &follows).start();
    replica.in_step_with(master);
    // From here on the replica receives no writes.
    link.freeze(true);

    let fixture = testbed.fixture();
    let (mut first, mut next) = two(&fixture)?;
    let resources = fixture.resources();
    first.take()?;
    first.request(Request::Read)?;

    let failed = now();
    let Servers::Redis(servers) = testbed.servers_mut() else {
        unreachable!("the kind of servers does not change")
    };
    servers[0].kill();
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    servers[0] = replica;
    testbed.wires()[0].lead_to(testbed.servers().redis()[0].address());
    testbed.wires()[0].partition();

    replaced(&mut first, &mut next, failed, &resources)
}

/// The holder reaches three of five masters. One of these restarts empty. The next client reaches
/// that one and the two that the holder does not reach.
fn master_restarts_empty(testbed: &mut BaselineTestbed) -> Result<Failover> {
    let unreachable: Vec<Wire> = testbed.servers().redis()[3..]
        .iter()
        .map(|master| Wire::to(master.address()))
        .collect();
    for wire in &unreachable {
        wire.refuse(true);
    }

    let fixture = testbed.fixture();
    let mut wires = fixture.addresses();
    wires.truncate(3);
    wires.extend(unreachable.iter().map(Wire::address));

    let mut first = fixture.start_by(1, LONG_MILLIS, &wires)?;
    let mut next = fixture.start(2, LONG_MILLIS)?;
    let resources = fixture.resources();
    first.take()?;
    first.request(Request::Read)?;

    let failed = now();
    let Servers::Redis(servers) = testbed.servers_mut() else {
        unreachable!("the kind of servers does not change")
    };
    servers[2].restart();

    let done = replaced(&mut first, &mut next, failed, &resources)?;

    drop((first, next));
    testbed.be_ready()?;
    Ok(done)
}

fn leader_is_killed(testbed: &mut BaselineTestbed) -> Result<Failover> {
    let Servers::Ensemble(ensemble) = testbed.servers() else {
        unreachable!("the kind of servers does not change")
    };
    let leader = ensemble.leader();
    let lags = (leader + 1) % ensemble.count();
    let fixture = testbed.fixture();
    let (mut first, mut next) = two(&fixture)?;
    let resources = fixture.resources();
    ensemble.freeze(lags);
    first.take()?;
    first.request(Request::Read)?;

    let failed = now();
    let Servers::Ensemble(ensemble) = testbed.servers_mut() else {
        unreachable!("the kind of servers does not change")
    };
    ensemble.server_mut(leader).kill();
    ensemble.heal();
    let done = replaced(&mut first, &mut next, failed, &resources)?;

    drop((first, next));
    let Servers::Ensemble(ensemble) = testbed.servers_mut() else {
        unreachable!("the kind of servers does not change")
    };
    ensemble.server_mut(leader).restart();
    testbed.be_ready()?;
    Ok(done)
}

/// Lets the next client acquire, read and write after the replacement.
///
/// The first holder writes too if it still reports the lock as held. Then both are checked until
/// one no longer reports the lock as held.
fn replaced(
    first: &mut Client,
    next: &mut Client,
    failed: u64,
    resources: &Path,
) -> Result<Failover> {
    let Some(granted) = granted_at_last(next)? else {
        return Ok(Failover {
            next_millis: None,
            both_millis: None,
            without_end: false,
            lost: Lost::default(),
        });
    };

    let still_holds = claims_to_hold(first)?;
    next.request(Request::Read)?;
    next.request(Request::Write)?;
    if still_holds {
        first.request(Request::Write)?;
    }

    let both = both_hold(first, next, granted)?;
    let both = both.or(still_holds.then_some((0, false)));
    Ok(Failover {
        next_millis: Some(millis(failed, granted)),
        both_millis: both.map(|(millis, _)| millis),
        without_end: both.is_some_and(|(_, without_end)| without_end),
        lost: lost_at(resources)?,
    })
}

/// Acquires the lock, and returns the time of the grant.
///
/// Failed requests are retried, because servers that are being replaced do not reply.
fn granted_at_last(next: &mut Client) -> Result<Option<u64>> {
    let begun = now();
    while millis(begun, now()) < NEVER_MILLIS {
        let response = next.request(Request::Acquire(
            NEVER_MILLIS - millis(begun, now()).min(NEVER_MILLIS - 1),
        ))?;
        match response.reply {
            Reply::Granted(_) => return Ok(Some(response.to)),
            Reply::NotGranted => return Ok(None),
            _ => sleep(Duration::from_millis(10)),
        }
    }
    Ok(None)
}

/// Returns for how many milliseconds both clients report the lock as held, and whether they still
/// do at the end.
fn both_hold(first: &mut Client, next: &mut Client, since: u64) -> Result<Option<(u64, bool)>> {
    let mut both = None;
    while now() < since + 3_000_000_000 {
        let response = first.request(Request::Check)?;
        if response.reply != Reply::Holds(true) || !claims_to_hold(next)? {
            return Ok(both.map(|until| (millis(since, until), false)));
        }
        both = Some(response.from);
        sleep(Duration::from_millis(2));
    }
    Ok(both.map(|until| (millis(since, until), true)))
}

/// Kills a minority of the servers, and then a majority.
///
/// # Errors
/// As [`crash`](super::crash).
pub fn down(testbed: &mut BaselineTestbed) -> Result<Option<Down>> {
    let (few, most) = match testbed.servers() {
        Servers::None => return Ok(None),
        Servers::Redis(servers) => (servers.len().div_ceil(2) - 1, servers.len().div_ceil(2)),
        Servers::Ensemble(_) => (1, 2),
    };

    let first_to_die = if let Servers::Ensemble(ensemble) = testbed.servers() {
        ensemble.leader()
    } else {
        0
    };

    let mut minority = None;
    if few > 0 {
        let mut other = testbed.fixture().start(3, LEASE_MILLIS)?;
        kill(testbed, first_to_die, 0..few);
        let begun = now();
        let after_millis = granted_at_last(&mut other)?.map(|granted| millis(begun, granted));
        minority = Some(Granted { after_millis });
    }

    let fixture = testbed.fixture();
    let mut holder = fixture.start(1, LEASE_MILLIS)?;
    let mut other = fixture.start(2, LEASE_MILLIS)?;
    granted_at_last(&mut holder)?
        .context("the lock was not granted although a majority of the servers ran")?;
    kill(testbed, first_to_die, few..most);
    let killed = now();
    // The request is pending while the holder is checked, so neither waits for the other.
    other.send(Request::Acquire(3_000))?;
    let notified_millis = notified(&mut holder, killed)?;
    let response = other.receive()?;
    let majority_millis = millis(response.from, response.to);
    Ok(Some(Down {
        minority,
        majority_granted: is_granted(&response),
        majority_millis,
        notified_millis,
    }))
}

fn kill(testbed: &mut BaselineTestbed, first: usize, which: std::ops::Range<usize>) {
    match testbed.servers_mut() {
        Servers::None => {}
        Servers::Redis(servers) => servers[which].iter_mut().for_each(Redis::kill),
        Servers::Ensemble(ensemble) => {
            let count = ensemble.count();
            which.for_each(|at| ensemble.server_mut((first + at) % count).kill());
        }
    }
}

/// Returns after how long the holder no longer reports the lock as held.
fn notified(holder: &mut Client, since: u64) -> Result<Option<u64>> {
    while now() < since + u64::try_from(UNRESPONSIVE.as_nanos())? {
        let response = holder.request(Request::Check)?;
        if response.reply != Reply::Holds(true) {
            return Ok(Some(millis(since, response.to)));
        }
        sleep(Duration::from_millis(5));
    }
    Ok(None)
}
