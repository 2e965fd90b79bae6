//! What is done to every specimen, and what came of it.

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

/// Whoever is granted the lock although somebody else has it, is within so long.
const SOON_MILLIS: u64 = 1_000;
/// How long a holder may take to hear of its loss before it is said never to.
const UNRESPONSIVE: Duration = Duration::from_secs(6);
/// For how long the crowd waits before the first lets go.
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

/// A holder that was stopped between what it read and what it wrote, until another had held and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Whether another was granted the lock meanwhile. If not, nothing else here has happened.
    pub next_held: bool,
    /// The first, back again, still said that it held.
    pub both_claimed: bool,
    /// What the late write did.
    pub lost: Lost,
}

/// Updates that were written over by somebody who had not seen them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// On a resource that takes everything.
    pub unfenced: usize,
    /// On one that goes by tokens and is sealed; `None` where the lock has no token.
    pub fenced: Option<usize>,
}

/// Releases by those who have no right to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Whoever was refused the lock, and released all the same, freed it.
    pub refused_freed: bool,
    /// Whoever held it once, and was late with the release, freed it; `None` if another never came to hold it.
    pub late_freed: Option<bool>,
}

/// What a lock was kept on was replaced by what had not heard of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failover {
    /// After so many milliseconds another was granted it; `None` if nobody was while this was looked at.
    pub next_millis: Option<u64>,
    /// For so long both said that they held; `None` if they never did.
    pub both_millis: Option<u64>,
    /// Whether that went on for as long as it was looked at.
    pub without_end: bool,
    /// What the first wrote afterwards did.
    pub lost: Lost,
}

/// Servers were killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Down {
    /// With most of them there: after so long another lock was granted; `None` where one is all there are.
    pub minority: Option<Granted>,
    /// Without them: somebody was granted a lock, which must not be.
    pub majority_granted: bool,
    /// How long it took to be told.
    pub majority_millis: u64,
    /// How long it took who held until it said so; `None` if it never did.
    pub notified_millis: Option<u64>,
}

/// Whether, and after how many milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// In milliseconds; `None` if never.
    pub after_millis: Option<u64>,
}

/// Many contended for one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crowd {
    /// How many of them have held it.
    pub held: usize,
    /// How often two held it at once.
    pub overlaps: usize,
    /// What happened to the resources.
    pub lost: Lost,
    /// From the first release to the last, in milliseconds.
    pub took_millis: u64,
    /// Requests to servers, for each that held, from when all began to wait; `None` where there is no server.
    pub requests_each: Option<u64>,
}

/// Puts a specimen through all of it.
///
/// # Errors
/// If a case cannot be carried out, or if a resource that is fenced took what its rule refuses.
pub fn all(mut testbed: BaselineTestbed, progress: impl Fn(&str)) -> Result<Row> {
    let contender = testbed.contender();
    progress("holder killed");
    let holder_killed = crash(&testbed, Request::Acquire(NEVER_MILLIS))?;
    let acquirer_killed = contender
        .has_steps()
        .then(|| crash(&testbed, Request::Begin))
        .transpose()?;
    progress("holder stopped");
    let (paused, late_freed) = pause(&testbed)?;
    progress("released by others");
    let owner = Owner {
        refused_freed: refused_frees(&testbed)?,
        late_freed,
    };
    progress("contended for by many");
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

/// A holder is killed, or whoever has done no more than the first step of an acquisition; another waits.
///
/// # Errors
/// If a process cannot be started, killed or heard.
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
    // It waits, and if not it will all the same.
    sleep(Duration::from_millis(300));
    let killed = first.kill()?;
    let response = next.receive()?;
    Ok(Crash {
        next_millis: is_granted(&response).then(|| millis(killed, response.to)),
    })
}

/// A holder reads, is stopped, and writes when it goes on; and then it releases. Whether that freed the lock of another, who holds.
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
    // It was about to write when it was stopped.
    first.send(Request::Write)?;
    first.resume()?;
    first.receive()?;
    let both_said_so = claims_to_hold(&mut first)? && claims_to_hold(&mut next)?;
    // What a late release answers may be anything.
    first.request(Request::Release)?;
    let freed = is_granted(&third.request(Request::Acquire(SOON_MILLIS))?);
    in_time(testbed, &granted)?;
    Ok((
        Pause {
            next_held: true,
            both_claimed: both_said_so,
            lost: lost(&fixture)?,
        },
        Some(freed),
    ))
}

/// Whoever is refused releases all the same, as code does that has the release where it always comes to; whether another could
/// take the lock then.
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
        "two hold with nothing done to them: {response:?}"
    );
    refused.request(Request::Release)?;
    let freed = is_granted(&third.request(Request::Acquire(SOON_MILLIS))?);
    in_time(testbed, &granted)?;
    Ok(freed)
}

/// Many processes each take the lock once, read, work and write.
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
    let sent_at = testbed.requests();
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
            .zip(sent_at)
            .map(|(after, before)| after.saturating_sub(before).div_ceil(each)),
    })
}

/// What a lock is kept on is replaced while somebody holds it: a master by a replica that has not heard of it, one of five masters by
/// an empty one, a leader by another while a third server lags.
///
/// # Errors
/// As [`crash`], and if the servers do not do as they are told.
pub fn failover(testbed: &mut BaselineTestbed) -> Result<Option<Failover>> {
    match testbed.servers() {
        Servers::None => return Ok(None),
        Servers::Redis(servers) if servers.len() == 1 => one_fails_over(testbed),
        Servers::Redis(_) => one_of_five_forgets(testbed),
        Servers::Ensemble(_) => a_leader_fails(testbed),
    }
    .map(Some)
}

fn one_fails_over(testbed: &mut BaselineTestbed) -> Result<Failover> {
    let master = &testbed.servers().redis()[0];
    let link = Wire::to(master.address());
    let follows = format!("127.0.0.1 {}", link.port());
    let replica = Redis::setup().config("replicaof", &follows).start();
    replica.in_step_with(master);
    // From here on it hears nothing of what is written.
    link.freeze(true);
    let fixture = testbed.fixture();
    let (mut first, mut next) = two(&fixture)?;
    let resources = fixture.resources();
    first.take()?;
    first.request(Request::Read)?;
    let failed = now();
    let Servers::Redis(servers) = testbed.servers_mut() else {
        unreachable!("it was just looked at")
    };
    servers[0].kill();
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    servers[0] = replica;
    testbed.wires()[0].lead_to(testbed.servers().redis()[0].address());
    testbed.wires()[0].partition();
    replaced(&mut first, &mut next, failed, &resources)
}

/// The holder reaches three of five; one of these forgets, and whoever comes next reaches it and the two others.
fn one_of_five_forgets(testbed: &mut BaselineTestbed) -> Result<Failover> {
    let apart: Vec<Wire> = testbed.servers().redis()[3..]
        .iter()
        .map(|master| Wire::to(master.address()))
        .collect();
    for wire in &apart {
        wire.refuse(true);
    }
    let fixture = testbed.fixture();
    let mut wires = fixture.addresses();
    wires.truncate(3);
    wires.extend(apart.iter().map(Wire::address));
    let mut first = fixture.start_by(1, LONG_MILLIS, &wires)?;
    let mut next = fixture.start(2, LONG_MILLIS)?;
    let resources = fixture.resources();
    first.take()?;
    first.request(Request::Read)?;
    let failed = now();
    let Servers::Redis(servers) = testbed.servers_mut() else {
        unreachable!("it was just looked at")
    };
    servers[2].restart();
    let done = replaced(&mut first, &mut next, failed, &resources)?;
    drop((first, next));
    testbed.be_ready()?;
    Ok(done)
}

fn a_leader_fails(testbed: &mut BaselineTestbed) -> Result<Failover> {
    let Servers::Ensemble(ensemble) = testbed.servers() else {
        unreachable!("it was just looked at")
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
        unreachable!("it was just looked at")
    };
    ensemble.server_mut(leader).kill();
    ensemble.heal();
    let done = replaced(&mut first, &mut next, failed, &resources)?;
    drop((first, next));
    let Servers::Ensemble(ensemble) = testbed.servers_mut() else {
        unreachable!("it was just looked at")
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

/// Somebody asks for the lock that another had, reads and writes; so does the other, if it still says that it holds; and both are asked
/// until one does not.
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

/// Asks again after each failure: servers that are about to be replaced cannot be asked. When it was granted.
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

/// For how many milliseconds both say that they hold, and whether that has no end.
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

/// Fewer than half of the servers are killed, and then more.
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
    let (mut holder, mut other) = (
        fixture.start(1, LEASE_MILLIS)?,
        fixture.start(2, LEASE_MILLIS)?,
    );
    granted_at_last(&mut holder)?
        .context("the lock was not granted while most servers were there")?;
    kill(testbed, first_to_die, few..most);
    let killed = now();
    // Both at once: neither waits for the other.
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

/// When the holder says that it does not hold any more.
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

/// What is shown of a lease must have been shown before it ended.
fn in_time(testbed: &BaselineTestbed, granted: &Response) -> Result<()> {
    let (lease, passed) = (testbed.ample_millis(), millis(granted.from, now()));
    ensure!(
        passed < lease,
        "the machine was too busy: a lease of {lease} ms was over when all was done, {passed} ms later"
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

/// How often one began to hold before the one before it had ended.
fn overlaps(mut held: Vec<(u64, u64)>) -> usize {
    held.sort_unstable();
    held.windows(2).filter(|two| two[1].0 < two[0].1).count()
}

fn lost(fixture: &Fixture<'_>) -> Result<Lost> {
    lost_at(&fixture.resources())
}

/// Reads what the resources took. That the fenced ones went by their rule is part of the lab, not of the specimen.
fn lost_at(folder: &Path) -> Result<Lost> {
    let resources = Resources::of(folder)?;
    let (counter, register, log) = (
        resources.counter.ops()?,
        resources.register.ops()?,
        resources.log.ops()?,
    );
    for fenced in [&register, &log] {
        ensure!(
            regress(fenced).is_none(),
            "a fenced resource took {:?}",
            regress(fenced)
        );
    }
    ensure!(duplicates(&log) == 0, "an entry is in the log twice");
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
