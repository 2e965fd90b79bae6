//! The cases that every contender goes through, and their figures.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab_servers::{Redis, Wire};
use serde::{Deserialize, Serialize};

use super::testbed::{BaselineTestbed, Fixture, Servers};
use super::{CROWD, LEASE_MILLIS, LONG_MILLIS, NEVER_MILLIS, Row};
use crate::baselines::{Client, Reply, Request, Response};
use crate::now;
use crate::resources::{Resources, duplicates, lost_updates, regress};

/// A lock that is granted although another client holds it is granted within this time.
const SOON_MILLIS: u64 = 1_000;
/// A holder that is not notified of its loss within this time counts as never notified.
const UNRESPONSIVE: Duration = Duration::from_secs(6);
/// How long the holder keeps the lock while the crowd waits.
const HELD: Duration = Duration::from_secs(1);
/// For how long each of the crowd waits.
pub const CROWD_MILLIS: u64 = 30_000;
/// How long each of the crowd holds.
const WORK_MILLIS: u64 = 3;

/// From a crash until the next holder; `None` if there was none in [`NEVER_MILLIS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crash {
    /// In milliseconds.
    pub next_millis: Option<u64>,
}

/// A holder was paused between its read and its write, until another client had held and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Whether another client was granted the lock meanwhile. If not, the other figures are empty.
    pub next_held: bool,
    /// Whether the paused holder still reported the lock as held when it continued.
    pub both_claimed: bool,
    /// The updates that the late write overwrote.
    pub lost: Lost,
}

/// Updates that were overwritten by a client that had not read them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// On a resource that accepts every write.
    pub unfenced: usize,
    /// On a resource that rejects stale tokens; `None` if the lock has no tokens.
    pub fenced: Option<usize>,
}

/// Releases by clients that do not hold the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// A client that was refused the lock and released it anyway freed it.
    pub refused_freed: bool,
    /// A former holder with a late release freed it; `None` if the lock had no next holder.
    pub late_freed: Option<bool>,
}

/// The server of a lock was replaced by one that had not received the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failover {
    /// Milliseconds until another client was granted the lock; `None` if this did not happen.
    pub next_millis: Option<u64>,
    /// For how many milliseconds both reported the lock as held; `None` if they never did.
    pub both_millis: Option<u64>,
    /// Whether both still reported the lock as held at the end of the observation.
    pub without_end: bool,
    /// The updates that a later write of the first holder overwrote.
    pub lost: Lost,
}

/// Servers were killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Down {
    /// Until the next grant while a majority runs; `None` if there is only one server.
    pub minority: Option<Granted>,
    /// Whether a lock was granted without a majority, which must not happen.
    pub majority_granted: bool,
    /// Milliseconds until the request for it ended.
    pub majority_millis: u64,
    /// Milliseconds until the holder was notified of its loss; `None` if it never was.
    pub notified_millis: Option<u64>,
}

/// The time until a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// In milliseconds; `None` if never.
    pub after_millis: Option<u64>,
}

/// Many clients contended for one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crowd {
    /// How many of them have held the lock.
    pub held: usize,
    /// How often two of them held it at the same time.
    pub overlaps: usize,
    /// The lost updates on the resources.
    pub lost: Lost,
    /// From the first release to the last, in milliseconds.
    pub took_millis: u64,
    /// Requests to the servers per holder, since all began to wait; `None` without a server.
    pub requests_each: Option<u64>,
}

/// Runs all cases with one contender.
///
/// # Errors
/// If a case cannot be run, or if a fenced resource accepted a stale token.
pub fn all(mut testbed: BaselineTestbed, progress: impl Fn(&str)) -> Result<Row> {
    let contender = testbed.contender();
    progress("holder killed");
    let holder_killed = crash(&testbed, Request::Acquire(NEVER_MILLIS))?;
    let acquirer_killed = contender
        .has_steps()
        .then(|| crash(&testbed, Request::Begin))
        .transpose()?;

    progress("holder paused");
    let (paused, late_freed) = pause(&testbed)?;

    progress("released by others");
    let owner = Owner {
        refused_freed: refused_frees(&testbed)?,
        late_freed,
    };

    progress("contention");
    let crowd = crowd(&testbed, CROWD)?;

    progress("servers replaced");
    let failover = failover(&mut testbed)?;

    progress("servers killed");
    let down = down(&mut testbed)?;
    Ok(Row {
        contender,
        holder_killed,
        acquirer_killed,
        paused,
        owner,
        failover,
        down,
        crowd,
    })
}

/// Kills a client after `step`, while another client waits for the lock.
///
/// The step is a whole acquisition, or only its first request.
///
/// # Errors
/// If a process cannot be started or killed, or does not respond.
pub fn crash(testbed: &BaselineTestbed, step: Request) -> Result<Crash> {
    let fixture = testbed.fixture();
    let mut first = fixture.start(1, LEASE_MILLIS)?;
    let mut next = fixture.start(2, LEASE_MILLIS)?;
    let response = first.request(step)?;
    ensure!(
        matches!(response.reply, Reply::Granted(_) | Reply::Done),
        "{response:?}"
    );
    next.send(Request::Acquire(NEVER_MILLIS))?;
    // Usually the second client waits by now. The case is valid without that too.
    sleep(Duration::from_millis(300));
    let killed = first.kill()?;
    let response = next.receive()?;
    Ok(Crash {
        next_millis: is_granted(&response).then(|| millis(killed, response.to)),
    })
}

/// Pauses a holder after its read. It writes and releases after another client has held.
///
/// Also returns whether the late release freed the other client's hold.
///
/// # Errors
/// As [`crash`].
pub fn pause(testbed: &BaselineTestbed) -> Result<(Pause, Option<bool>)> {
    let fixture = testbed.fixture();
    let mut first = fixture.start(1, LEASE_MILLIS)?;
    let mut next = fixture.start(2, testbed.ample_millis())?;
    let mut third = fixture.start(3, testbed.ample_millis())?;
    first.take()?;
    first.request(Request::Read)?;
    first.pause()?;
    let granted = next.request(Request::Acquire(NEVER_MILLIS))?;
    if !is_granted(&granted) {
        first.resume()?;
        return Ok((
            Pause {
                next_held: false,
                both_claimed: false,
                lost: Lost::default(),
            },
            None,
        ));
    }

    next.request(Request::Read)?;
    next.request(Request::Write)?;
    // The first holder was paused just before its write.
    first.send(Request::Write)?;
    first.resume()?;
    first.receive()?;
    let both_claimed = claims_to_hold(&mut first)? && claims_to_hold(&mut next)?;

    // A late release may return any reply.
    first.request(Request::Release)?;
    let freed = is_granted(&third.request(Request::Acquire(SOON_MILLIS))?);
    in_time(testbed, &granted)?;
    Ok((
        Pause {
            next_held: true,
            both_claimed,
            lost: lost(&fixture)?,
        },
        Some(freed),
    ))
}

/// Releases the lock from a client that was refused it, as code with an unconditional release does.
///
/// Returns whether a third client could then acquire the lock.
///
/// # Errors
/// As [`crash`].
pub fn refused_frees(testbed: &BaselineTestbed) -> Result<bool> {
    let fixture = testbed.fixture();
    let mut holder = fixture.start(1, testbed.ample_millis())?;
    let mut refused = fixture.start(2, testbed.ample_millis())?;
    let mut third = fixture.start(3, testbed.ample_millis())?;
    let granted = holder.take()?;
    let response = refused.request(Request::Acquire(200))?;
    ensure!(
        !is_granted(&response),
        "two clients hold the lock without any fault: {response:?}"
    );

    refused.request(Request::Release)?;
    let freed = is_granted(&third.request(Request::Acquire(SOON_MILLIS))?);
    in_time(testbed, &granted)?;
    Ok(freed)
}

/// Many processes each acquire the lock once, read, work and write.
///
/// # Errors
/// As [`crash`].
pub fn crowd(testbed: &BaselineTestbed, count: u32) -> Result<Crowd> {
    let fixture = testbed.fixture();
    let mut holder = fixture.start(0, testbed.ample_millis())?;
    let mut all = (1..=count)
        .map(|worker| fixture.launch_direct(worker, testbed.ample_millis()))
        .collect::<Result<Vec<Client>>>()?;
    all.iter().try_for_each(|one| one.receive().map(drop))?;

    holder.take()?;
    let requests_before = testbed.requests();
    all.iter_mut()
        .try_for_each(|one| one.send(Request::Cycle(CROWD_MILLIS, WORK_MILLIS)))?;
    sleep(HELD);

    let begun = now();
    holder.request(Request::Release)?;
    let response = all
        .iter()
        .map(Client::receive)
        .collect::<Result<Vec<Response>>>()?;
    let requests = testbed.requests();

    let held: Vec<(u64, u64)> = response.iter().filter_map(cycled).collect();
    let each = held.len().max(1) as u64;
    let last = response
        .iter()
        .map(|response| response.to)
        .max()
        .unwrap_or(begun);
    Ok(Crowd {
        held: held.len(),
        overlaps: overlaps(held),
        lost: lost(&fixture)?,
        took_millis: millis(begun, last),
        requests_each: requests
            .zip(requests_before)
            .map(|(after, before)| after.saturating_sub(before).div_ceil(each)),
    })
}

/// Replaces a server while a client holds the lock.
///
/// - One Redis server is replaced by a replica that has not received the lock.
/// - One of five masters restarts empty.
/// - The ZooKeeper leader is replaced while a third server lags.
///
/// # Errors
/// As [`crash`], and if the servers do not execute a command.
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

fn two(fixture: &Fixture<'_>) -> Result<(Client, Client)> {
    Ok((
        fixture.start(1, LONG_MILLIS)?,
        fixture.start(2, LONG_MILLIS)?,
    ))
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
/// As [`crash`].
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

fn claims_to_hold(one: &mut Client) -> Result<bool> {
    Ok(one.request(Request::Check)?.reply == Reply::Holds(true))
}

/// Fails if the lease of the case has ended. Its figures would then prove nothing.
fn in_time(testbed: &BaselineTestbed, granted: &Response) -> Result<()> {
    let lease = testbed.ample_millis();
    let passed = millis(granted.from, now());
    ensure!(
        passed < lease,
        "the machine was too busy: the case took {passed} ms, longer than the lease of {lease} ms"
    );
    Ok(())
}

fn is_granted(response: &Response) -> bool {
    matches!(response.reply, Reply::Granted(_))
}

fn cycled(response: &Response) -> Option<(u64, u64)> {
    if let Reply::Cycled(granted, until) = response.reply {
        Some((granted, until))
    } else {
        None
    }
}

/// Counts how often a hold began before the previous one had ended.
fn overlaps(mut held: Vec<(u64, u64)>) -> usize {
    held.sort_unstable();
    held.windows(2).filter(|two| two[1].0 < two[0].1).count()
}

fn lost(fixture: &Fixture<'_>) -> Result<Lost> {
    lost_at(&fixture.resources())
}

/// Reads the writes that the resources accepted.
///
/// Fails if a fenced resource accepted a stale token: that is a bug of the lab, not of the
/// contender.
fn lost_at(folder: &Path) -> Result<Lost> {
    let resources = Resources::of(folder)?;
    let counter = resources.counter.ops()?;
    let register = resources.register.ops()?;
    let log = resources.log.ops()?;

    for fenced in [&register, &log] {
        ensure!(
            regress(fenced).is_none(),
            "a fenced resource accepted a stale token: {:?}",
            regress(fenced)
        );
    }
    ensure!(duplicates(&log) == 0, "the log has an entry twice");

    let fenced = (!register.is_empty()).then(|| lost_updates(&register));
    Ok(Lost {
        unfenced: lost_updates(&counter),
        fenced,
    })
}

fn millis(from: u64, to: u64) -> u64 {
    to.saturating_sub(from) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::overlaps;

    #[test]
    fn overlapping_holds_are_counted() {
        assert_eq!(overlaps(vec![(5, 9), (1, 4), (9, 12)]), 0);
        assert_eq!(overlaps(vec![(5, 9), (1, 6), (8, 12)]), 2);
    }
}
