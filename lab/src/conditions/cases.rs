//! What is done to every specimen, and what came of it.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab_servers::{Redis, Wire};
use serde::{Deserialize, Serialize};

use super::ground::{Ground, Scene, Servers};
use super::{CROWD, LEASE_MILLIS, LONG_MILLIS, NEVER_MILLIS, Row};
use crate::now;
use crate::specimens::{Answer, Order, Running, Said};
use crate::victims::{Victims, duplicates, lost_updates, regress};

/// Whoever is granted the lock although somebody else has it, is within so long.
const SOON_MILLIS: u64 = 1_000;
/// How long a holder may take to hear of its loss before it is said never to.
const DEAF: Duration = Duration::from_secs(6);
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
    pub both_said_so: bool,
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
    pub heard_millis: Option<u64>,
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
pub fn all(mut ground: Ground, told: impl Fn(&str)) -> Result<Row> {
    let kind = ground.kind();
    told("holder killed");
    let holder_killed = crash(&ground, Order::Acquire(NEVER_MILLIS))?;
    let acquirer_killed = kind.has_steps().then(|| crash(&ground, Order::Begin)).transpose()?;
    told("holder stopped");
    let (paused, late_freed) = pause(&ground)?;
    told("released by others");
    let owner = Owner { refused_freed: refused_frees(&ground)?, late_freed };
    told("contended for by many");
    let crowd = crowd(&ground, CROWD)?;
    told("servers replaced");
    let failover = failover(&mut ground)?;
    told("servers killed");
    let down = down(&mut ground)?;
    Ok(Row { kind, holder_killed, acquirer_killed, paused, owner, failover, down, crowd })
}

/// A holder is killed, or whoever has done no more than the first step of an acquisition; another waits.
///
/// # Errors
/// If a process cannot be started, killed or heard.
pub fn crash(ground: &Ground, step: Order) -> Result<Crash> {
    let scene = ground.scene();
    let mut first = scene.start(1, LEASE_MILLIS)?;
    let mut next = scene.start(2, LEASE_MILLIS)?;
    let said = first.ask(step)?;
    ensure!(matches!(said.answer, Answer::Granted(_) | Answer::Done), "{said:?}");
    next.order(Order::Acquire(NEVER_MILLIS))?;
    // It waits, and if not it will all the same.
    sleep(Duration::from_millis(300));
    let killed = first.kill()?;
    let said = next.hear()?;
    Ok(Crash { next_millis: is_granted(&said).then(|| millis(killed, said.to)) })
}

/// A holder reads, is stopped, and writes when it goes on; and then it releases. Whether that freed the lock of another, who holds.
///
/// # Errors
/// As [`crash`].
pub fn pause(ground: &Ground) -> Result<(Pause, Option<bool>)> {
    let scene = ground.scene();
    let mut first = scene.start(1, LEASE_MILLIS)?;
    let mut next = scene.start(2, ground.ample_millis())?;
    let mut third = scene.start(3, ground.ample_millis())?;
    first.take()?;
    first.ask(Order::Read)?;
    first.stop()?;
    let granted = next.ask(Order::Acquire(NEVER_MILLIS))?;
    if !is_granted(&granted) {
        first.resume()?;
        return Ok((Pause { next_held: false, both_said_so: false, lost: Lost::default() }, None));
    }
    next.ask(Order::Read)?;
    next.ask(Order::Write)?;
    // It was about to write when it was stopped.
    first.order(Order::Write)?;
    first.resume()?;
    first.hear()?;
    let both_said_so = says_it_holds(&mut first)? && says_it_holds(&mut next)?;
    // What a late release answers may be anything.
    first.ask(Order::Release)?;
    let freed = is_granted(&third.ask(Order::Acquire(SOON_MILLIS))?);
    in_time(ground, &granted)?;
    Ok((Pause { next_held: true, both_said_so, lost: lost(&scene)? }, Some(freed)))
}

/// Whoever is refused releases all the same, as code does that has the release where it always comes to; whether another could
/// take the lock then.
///
/// # Errors
/// As [`crash`].
pub fn refused_frees(ground: &Ground) -> Result<bool> {
    let scene = ground.scene();
    let mut holder = scene.start(1, ground.ample_millis())?;
    let mut refused = scene.start(2, ground.ample_millis())?;
    let mut third = scene.start(3, ground.ample_millis())?;
    let granted = holder.take()?;
    let said = refused.ask(Order::Acquire(200))?;
    ensure!(!is_granted(&said), "two hold with nothing done to them: {said:?}");
    refused.ask(Order::Release)?;
    let freed = is_granted(&third.ask(Order::Acquire(SOON_MILLIS))?);
    in_time(ground, &granted)?;
    Ok(freed)
}

/// Many processes each take the lock once, read, work and write.
///
/// # Errors
/// As [`crash`].
pub fn crowd(ground: &Ground, count: u32) -> Result<Crowd> {
    let scene = ground.scene();
    let mut holder = scene.start(0, ground.ample_millis())?;
    let mut all =
        (1..=count).map(|hand| scene.launch_direct(hand, ground.ample_millis())).collect::<Result<Vec<Running>>>()?;
    all.iter().try_for_each(|one| one.hear().map(drop))?;
    holder.take()?;
    let asked = ground.requests();
    all.iter_mut().try_for_each(|one| one.order(Order::Cycle(CROWD_MILLIS, WORK_MILLIS)))?;
    sleep(HELD);
    let begun = now();
    holder.ask(Order::Release)?;
    let said = all.iter().map(Running::hear).collect::<Result<Vec<Said>>>()?;
    let requests = ground.requests();
    let held: Vec<(u64, u64)> = said.iter().filter_map(cycled).collect();
    let each = held.len().max(1) as u64;
    let last = said.iter().map(|said| said.to).max().unwrap_or(begun);
    Ok(Crowd {
        held: held.len(),
        overlaps: overlaps(held),
        lost: lost(&scene)?,
        took_millis: millis(begun, last),
        requests_each: requests.zip(asked).map(|(after, before)| after.saturating_sub(before).div_ceil(each)),
    })
}

/// What a lock is kept on is replaced while somebody holds it: a master by a replica that has not heard of it, one of five masters by
/// an empty one, a leader by another while a third server lags.
///
/// # Errors
/// As [`crash`], and if the servers do not do as they are told.
pub fn failover(ground: &mut Ground) -> Result<Option<Failover>> {
    match ground.servers() {
        Servers::None => return Ok(None),
        Servers::Redis(servers) if servers.len() == 1 => one_fails_over(ground),
        Servers::Redis(_) => one_of_five_forgets(ground),
        Servers::Ensemble(_) => a_leader_fails(ground),
    }
    .map(Some)
}

fn one_fails_over(ground: &mut Ground) -> Result<Failover> {
    let master = &ground.servers().redis()[0];
    let link = Wire::to(master.address());
    let follows = format!("127.0.0.1 {}", link.port());
    let replica = Redis::setup().config("replicaof", &follows).start();
    replica.in_step_with(master);
    // From here on it hears nothing of what is written.
    link.freeze(true);
    let scene = ground.scene();
    let (mut first, mut next) = two(&scene)?;
    let victims = scene.victims();
    first.take()?;
    first.ask(Order::Read)?;
    let failed = now();
    let Servers::Redis(servers) = ground.servers_mut() else { unreachable!("it was just looked at") };
    servers[0].kill();
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    servers[0] = replica;
    ground.wires()[0].lead_to(ground.servers().redis()[0].address());
    ground.wires()[0].cut();
    replaced(&mut first, &mut next, failed, &victims)
}

/// The holder reaches three of five; one of these forgets, and whoever comes next reaches it and the two others.
fn one_of_five_forgets(ground: &mut Ground) -> Result<Failover> {
    let apart: Vec<Wire> = ground.servers().redis()[3..].iter().map(|master| Wire::to(master.address())).collect();
    for wire in &apart {
        wire.refuse(true);
    }
    let scene = ground.scene();
    let mut wires = scene.addresses();
    wires.truncate(3);
    wires.extend(apart.iter().map(Wire::address));
    let mut first = scene.start_by(1, LONG_MILLIS, &wires)?;
    let mut next = scene.start(2, LONG_MILLIS)?;
    let victims = scene.victims();
    first.take()?;
    first.ask(Order::Read)?;
    let failed = now();
    let Servers::Redis(servers) = ground.servers_mut() else { unreachable!("it was just looked at") };
    servers[2].restart();
    let done = replaced(&mut first, &mut next, failed, &victims)?;
    drop((first, next));
    ground.be_ready()?;
    Ok(done)
}

fn a_leader_fails(ground: &mut Ground) -> Result<Failover> {
    let Servers::Ensemble(ensemble) = ground.servers() else { unreachable!("it was just looked at") };
    let leader = ensemble.leader();
    let lags = (leader + 1) % ensemble.count();
    let scene = ground.scene();
    let (mut first, mut next) = two(&scene)?;
    let victims = scene.victims();
    ensemble.freeze(lags);
    first.take()?;
    first.ask(Order::Read)?;
    let failed = now();
    let Servers::Ensemble(ensemble) = ground.servers_mut() else { unreachable!("it was just looked at") };
    ensemble.server_mut(leader).kill();
    ensemble.heal();
    let done = replaced(&mut first, &mut next, failed, &victims)?;
    drop((first, next));
    let Servers::Ensemble(ensemble) = ground.servers_mut() else { unreachable!("it was just looked at") };
    ensemble.server_mut(leader).restart();
    ground.be_ready()?;
    Ok(done)
}

fn two(scene: &Scene<'_>) -> Result<(Running, Running)> {
    Ok((scene.start(1, LONG_MILLIS)?, scene.start(2, LONG_MILLIS)?))
}

/// Somebody asks for the lock that another had, reads and writes; so does the other, if it still says that it holds; and both are asked
/// until one does not.
fn replaced(first: &mut Running, next: &mut Running, failed: u64, victims: &Path) -> Result<Failover> {
    let Some(granted) = granted_at_last(next)? else {
        return Ok(Failover { next_millis: None, both_millis: None, without_end: false, lost: Lost::default() });
    };
    let still_holds = says_it_holds(first)?;
    next.ask(Order::Read)?;
    next.ask(Order::Write)?;
    if still_holds {
        first.ask(Order::Write)?;
    }
    let both = both_hold(first, next, granted)?;
    let both = both.or(still_holds.then_some((0, false)));
    Ok(Failover {
        next_millis: Some(millis(failed, granted)),
        both_millis: both.map(|(millis, _)| millis),
        without_end: both.is_some_and(|(_, without_end)| without_end),
        lost: lost_at(victims)?,
    })
}

/// Asks again after each failure: servers that are about to be replaced cannot be asked. When it was granted.
fn granted_at_last(next: &mut Running) -> Result<Option<u64>> {
    let begun = now();
    while millis(begun, now()) < NEVER_MILLIS {
        let said = next.ask(Order::Acquire(NEVER_MILLIS - millis(begun, now()).min(NEVER_MILLIS - 1)))?;
        match said.answer {
            Answer::Granted(_) => return Ok(Some(said.to)),
            Answer::NotGranted => return Ok(None),
            _ => sleep(Duration::from_millis(10)),
        }
    }
    Ok(None)
}

/// For how many milliseconds both say that they hold, and whether that has no end.
fn both_hold(first: &mut Running, next: &mut Running, since: u64) -> Result<Option<(u64, bool)>> {
    let mut both = None;
    while now() < since + 3_000_000_000 {
        let said = first.ask(Order::Check)?;
        if said.answer != Answer::Holds(true) || !says_it_holds(next)? {
            return Ok(both.map(|until| (millis(since, until), false)));
        }
        both = Some(said.from);
        sleep(Duration::from_millis(2));
    }
    Ok(both.map(|until| (millis(since, until), true)))
}

/// Fewer than half of the servers are killed, and then more.
///
/// # Errors
/// As [`crash`].
pub fn down(ground: &mut Ground) -> Result<Option<Down>> {
    let (few, most) = match ground.servers() {
        Servers::None => return Ok(None),
        Servers::Redis(servers) => (servers.len().div_ceil(2) - 1, servers.len().div_ceil(2)),
        Servers::Ensemble(_) => (1, 2),
    };
    let first_to_die = if let Servers::Ensemble(ensemble) = ground.servers() { ensemble.leader() } else { 0 };
    let mut minority = None;
    if few > 0 {
        let mut other = ground.scene().start(3, LEASE_MILLIS)?;
        kill(ground, first_to_die, 0..few);
        let begun = now();
        let after_millis = granted_at_last(&mut other)?.map(|granted| millis(begun, granted));
        minority = Some(Granted { after_millis });
    }
    let scene = ground.scene();
    let (mut holder, mut other) = (scene.start(1, LEASE_MILLIS)?, scene.start(2, LEASE_MILLIS)?);
    granted_at_last(&mut holder)?.context("the lock was not granted while most servers were there")?;
    kill(ground, first_to_die, few..most);
    let killed = now();
    // Both at once: neither waits for the other.
    other.order(Order::Acquire(3_000))?;
    let heard_millis = heard(&mut holder, killed)?;
    let said = other.hear()?;
    let majority_millis = millis(said.from, said.to);
    Ok(Some(Down { minority, majority_granted: is_granted(&said), majority_millis, heard_millis }))
}

fn kill(ground: &mut Ground, first: usize, which: std::ops::Range<usize>) {
    match ground.servers_mut() {
        Servers::None => {}
        Servers::Redis(servers) => servers[which].iter_mut().for_each(Redis::kill),
        Servers::Ensemble(ensemble) => {
            let count = ensemble.count();
            which.for_each(|at| ensemble.server_mut((first + at) % count).kill());
        }
    }
}

/// When the holder says that it does not hold any more.
fn heard(holder: &mut Running, since: u64) -> Result<Option<u64>> {
    while now() < since + u64::try_from(DEAF.as_nanos())? {
        let said = holder.ask(Order::Check)?;
        if said.answer != Answer::Holds(true) {
            return Ok(Some(millis(since, said.to)));
        }
        sleep(Duration::from_millis(5));
    }
    Ok(None)
}

fn says_it_holds(one: &mut Running) -> Result<bool> {
    Ok(one.ask(Order::Check)?.answer == Answer::Holds(true))
}

/// What is shown of a lease must have been shown before it ended.
fn in_time(ground: &Ground, granted: &Said) -> Result<()> {
    let (lease, passed) = (ground.ample_millis(), millis(granted.from, now()));
    ensure!(
        passed < lease,
        "the machine was too busy: a lease of {lease} ms was over when all was done, {passed} ms later"
    );
    Ok(())
}

fn is_granted(said: &Said) -> bool {
    matches!(said.answer, Answer::Granted(_))
}

fn cycled(said: &Said) -> Option<(u64, u64)> {
    if let Answer::Cycled(granted, until) = said.answer { Some((granted, until)) } else { None }
}

/// How often one began to hold before the one before it had ended.
fn overlaps(mut held: Vec<(u64, u64)>) -> usize {
    held.sort_unstable();
    held.windows(2).filter(|two| two[1].0 < two[0].1).count()
}

fn lost(scene: &Scene<'_>) -> Result<Lost> {
    lost_at(&scene.victims())
}

/// Reads what the resources took. That the fenced ones went by their rule is part of the lab, not of the specimen.
fn lost_at(folder: &Path) -> Result<Lost> {
    let victims = Victims::of(folder)?;
    let (counter, register, log) = (victims.counter.ops()?, victims.register.ops()?, victims.log.ops()?);
    for fenced in [&register, &log] {
        ensure!(regress(fenced).is_none(), "a fenced resource took {:?}", regress(fenced));
    }
    ensure!(duplicates(&log) == 0, "an entry is in the log twice");
    let fenced = (!register.is_empty()).then(|| lost_updates(&register));
    Ok(Lost { unfenced: lost_updates(&counter), fenced })
}

fn millis(from: u64, to: u64) -> u64 {
    to.saturating_sub(from) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::overlaps;

    #[test]
    fn holds_that_overlap_are_counted() {
        assert_eq!(overlaps(vec![(5, 9), (1, 4), (9, 12)]), 0);
        assert_eq!(overlaps(vec![(5, 9), (1, 6), (8, 12)]), 2);
    }
}
