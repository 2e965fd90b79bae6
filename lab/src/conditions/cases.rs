//! The cases that every contender goes through, and their figures.

mod figures;
mod outages;

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::testbed::{BaselineTestbed, Fixture};
use super::{CROWD, LEASE_MILLIS, LONG_MILLIS, NEVER_MILLIS, Row};
use crate::baselines::{Client, Reply, Request, Response};
use crate::now;
use crate::resources::{Resources, duplicates, lost_updates, regress};

pub use figures::{Crash, Crowd, Down, Failover, Granted, Lost, Owner, Pause};
pub use outages::{down, failover};

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
    let mut all = start_all(&fixture, count, testbed.ample_millis())?;

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

/// Starts clients and waits until all are ready. The start of a Java program takes seconds, so only
/// a few start at once.
fn start_all(fixture: &Fixture<'_>, count: u32, lease_millis: u64) -> Result<Vec<Client>> {
    const AT_ONCE: usize = 10;
    let workers: Vec<u32> = (1..=count).collect();
    let mut all = Vec::with_capacity(workers.len());

    for workers in workers.chunks(AT_ONCE) {
        let started = workers
            .iter()
            .map(|worker| fixture.launch_direct(*worker, lease_millis))
            .collect::<Result<Vec<Client>>>()?;
        started.iter().try_for_each(|one| one.receive().map(drop))?;
        all.extend(started);
    }
    Ok(all)
}

fn two(fixture: &Fixture<'_>) -> Result<(Client, Client)> {
    Ok((
        fixture.start(1, LONG_MILLIS)?,
        fixture.start(2, LONG_MILLIS)?,
    ))
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
