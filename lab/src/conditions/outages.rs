//! Servers that fail while a contender holds the lock.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab_servers::{Ensemble, Postgres, Redis, Wire};

use super::cases::{Both, Down, Failover, Lost, Minority, claims_to_hold, lost_at, millis};
use super::testbed::{BaselineTestbed, Fixture, Servers, addresses};
use super::{LEASE, LONG, NEVER_MILLIS};
use crate::baselines::{Client, Reply, Request};
use crate::{now, until};

/// A holder that is not notified of its loss within this time counts as never notified.
const UNRESPONSIVE_MILLIS: u64 = 6_000;
/// For how long two clients that both report the lock as held are observed.
const OBSERVED_MILLIS: u64 = 3_000;

/// Replaces a server while a client holds the lock.
///
/// - One Redis or PostgreSQL server is replaced by a replica that has not received the lock.
/// - One of five masters restarts empty.
/// - The ZooKeeper leader is replaced while a third server lags.
pub(super) fn failover(testbed: &mut BaselineTestbed) -> Result<Option<Failover>> {
    let fixture = testbed.fixture();
    let failover = match &mut testbed.servers {
        Servers::Folder(_) => return Ok(None),
        Servers::Redis(servers) => match &mut servers[..] {
            [server] => replica_is_promoted(&fixture, server)?,
            masters => master_restarts_empty(&fixture, masters)?,
        },
        Servers::Postgres(server) => standby_is_promoted(&fixture, server)?,
        Servers::Ensemble(ensemble) => leader_is_killed(&fixture, ensemble)?,
    };

    testbed.be_ready()?;
    Ok(Some(failover))
}

fn replica_is_promoted(fixture: &Fixture, server: &mut Redis) -> Result<Failover> {
    let link = Wire::to(server.address());
    let follows = format!("127.0.0.1 {}", link.port());
    let replica = Redis::setup().config("replicaof", &follows).start();
    replica.in_step_with(server);
    // From here on the replica receives no writes.
    link.freeze(true);

    let wire = Wire::to(server.address());
    let mut first = fixture.start_at(1, LONG, &wire.address())?;
    let next = fixture.start_at(2, LONG, &wire.address())?;
    hold_and_read(&mut first)?;

    server.kill();
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    wire.lead_to(replica.address());
    wire.partition();
    *server = replica;
    replaced(fixture, first, next)
}

fn standby_is_promoted(fixture: &Fixture, server: &mut Postgres) -> Result<Failover> {
    let replica = server.replica();
    replica.run("ALTER SYSTEM SET primary_conninfo = ''; SELECT pg_reload_conf()");
    until("the replica to receive nothing more", || {
        let receiving = replica.run("SELECT pid FROM pg_stat_wal_receiver");
        Ok(receiving.is_empty().then_some(()))
    })?;

    let wire = Wire::to(server.address());
    let mut first = fixture.start_at(1, LONG, &wire.address())?;
    let next = fixture.start_at(2, LONG, &wire.address())?;
    hold_and_read(&mut first)?;

    server.stop();
    replica.promote();
    wire.lead_to(replica.address());
    wire.partition();
    *server = replica;
    replaced(fixture, first, next)
}

/// The holder reaches three of five masters. One of these restarts empty. The next client reaches
/// that one and the two that the holder does not reach.
fn master_restarts_empty(fixture: &Fixture, masters: &mut [Redis]) -> Result<Failover> {
    let wires = [3, 4].map(|unreachable: usize| Wire::to(masters[unreachable].address()));
    for wire in &wires {
        wire.refuse(true);
    }

    let reached = addresses(&masters[..3]);
    let unreachable = wires.each_ref().map(Wire::address).join(",");
    let mut first = fixture.start_at(1, LONG, &format!("{reached},{unreachable}"))?;
    let next = fixture.start(2, LONG)?;
    hold_and_read(&mut first)?;

    masters[2].restart();
    replaced(fixture, first, next)
}

fn leader_is_killed(fixture: &Fixture, ensemble: &mut Ensemble) -> Result<Failover> {
    let leader = ensemble.leader();
    let lags = (leader + 1) % ensemble.count();
    let mut first = fixture.start(1, LONG)?;
    let next = fixture.start(2, LONG)?;
    ensemble.freeze(lags);
    hold_and_read(&mut first)?;

    ensemble.server_mut(leader).kill();
    ensemble.heal();
    let failover = replaced(fixture, first, next)?;
    ensemble.server_mut(leader).restart();
    Ok(failover)
}

fn hold_and_read(first: &mut Client) -> Result<()> {
    first.take()?;
    first.request(Request::Read).map(drop)
}

/// Lets the next client acquire, read and write after the replacement.
///
/// The first holder writes too if it still reports the lock as held. Then both are checked until
/// one no longer reports the lock as held.
fn replaced(fixture: &Fixture, mut first: Client, mut next: Client) -> Result<Failover> {
    let Some(granted) = granted_at_last(&mut next)? else {
        return Ok(Failover {
            both: Both::NotTested,
            lost: Lost::default(),
        });
    };

    let still_holds = claims_to_hold(&mut first)?;
    next.request(Request::Read)?;
    next.request(Request::Write)?;
    if still_holds {
        first.request(Request::Write)?;
    }

    let both = match both_hold(&mut first, &mut next, granted)? {
        Both::Never if still_holds => Both::For(0),
        both => both,
    };
    Ok(Failover {
        both,
        lost: lost_at(&fixture.resources)?,
    })
}

/// Acquires the lock, and returns the time of the grant.
///
/// Failed requests are retried, because servers that are being replaced do not reply.
fn granted_at_last(next: &mut Client) -> Result<Option<u64>> {
    let begun = now();
    while millis(begun, now()) < NEVER_MILLIS {
        let left = NEVER_MILLIS - millis(begun, now()).min(NEVER_MILLIS - 1);
        let response = next.request(Request::Acquire(left))?;
        match response.reply {
            Reply::Granted => return Ok(Some(response.to)),
            Reply::NotGranted => return Ok(None),
            _ => sleep(Duration::from_millis(10)),
        }
    }
    Ok(None)
}

/// Checks two clients until one no longer reports the lock as held.
fn both_hold(first: &mut Client, next: &mut Client, since: u64) -> Result<Both> {
    let mut both = Both::Never;

    while millis(since, now()) < OBSERVED_MILLIS {
        let response = first.request(Request::Check)?;
        if response.reply != Reply::Holds(true) || !claims_to_hold(next)? {
            return Ok(both);
        }
        both = Both::For(millis(since, response.from));
        sleep(Duration::from_millis(2));
    }
    Ok(match both {
        Both::For(millis) => Both::WithoutEnd(millis),
        both => both,
    })
}

/// Kills a minority of the servers, and then a majority.
pub(super) fn down(testbed: &mut BaselineTestbed) -> Result<Option<Down>> {
    let dying = match &testbed.servers {
        Servers::Folder(_) => return Ok(None),
        Servers::Redis(servers) => (0..servers.len().div_ceil(2)).collect::<Vec<_>>(),
        Servers::Postgres(_) => vec![0],
        Servers::Ensemble(ensemble) => {
            let leader = ensemble.leader();
            vec![leader, (leader + 1) % ensemble.count()]
        }
    };
    let (last, minority) = dying.split_last().context("there is a server")?;

    let minority = without_minority(testbed, minority)?;
    let fixture = testbed.fixture();
    let mut holder = fixture.start(1, LEASE)?;
    let mut other = fixture.start(2, LEASE)?;
    let granted = granted_at_last(&mut holder)?;
    ensure!(
        granted.is_some(),
        "the lock was not granted although a majority of the servers ran"
    );

    kill(&mut testbed.servers, *last);
    let killed = now();
    // The request is pending while the holder is checked, so neither waits for the other.
    other.send(Request::Acquire(3_000))?;
    let notified_millis = notified(&mut holder, killed)?;
    Ok(Some(Down {
        minority,
        majority_granted: other.receive()?.reply == Reply::Granted,
        notified_millis,
    }))
}

/// Kills a minority of the servers, and then acquires a lock.
fn without_minority(testbed: &mut BaselineTestbed, minority: &[usize]) -> Result<Minority> {
    if minority.is_empty() {
        return Ok(Minority::None);
    }

    let mut client = testbed.fixture().start(3, LEASE)?;
    for server in minority {
        kill(&mut testbed.servers, *server);
    }
    let begun = now();
    Ok(match granted_at_last(&mut client)? {
        Some(granted) => Minority::GrantedAfter(millis(begun, granted)),
        None => Minority::NotGranted,
    })
}

fn kill(servers: &mut Servers, which: usize) {
    match servers {
        Servers::Folder(_) => {}
        Servers::Redis(servers) => servers[which].kill(),
        Servers::Postgres(server) => server.stop(),
        Servers::Ensemble(ensemble) => ensemble.server_mut(which).kill(),
    }
}

/// Returns after how many milliseconds the holder no longer reports the lock as held.
fn notified(holder: &mut Client, since: u64) -> Result<Option<u64>> {
    while millis(since, now()) < UNRESPONSIVE_MILLIS {
        let response = holder.request(Request::Check)?;
        if response.reply != Reply::Holds(true) {
            return Ok(Some(millis(since, response.to)));
        }
        sleep(Duration::from_millis(5));
    }
    Ok(None)
}
