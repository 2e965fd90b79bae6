//! The cases that every contender goes through, and their figures.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::outages::{down, failover};
use super::testbed::BaselineTestbed;
use super::{CROWD, LEASE, NEVER_MILLIS};
use crate::baselines::{Client, Contender, Reply, Request, Response};
use crate::now;
use crate::resources::{Resources, duplicates, lost_updates, regress};

/// A lock that is granted although another client holds it is granted within this time.
const SOON_MILLIS: u64 = 1_000;
/// How long the holder keeps the lock while the crowd waits.
const HELD: Duration = Duration::from_secs(1);
/// For how long each of the crowd waits.
const CROWD_MILLIS: u64 = 30_000;
/// How long each of the crowd holds.
const WORK_MILLIS: u64 = 3;

/// The figures of one contender. A case that needs a server is `None` without one.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The contender.
    pub contender: &'static Contender,
    /// A holder was killed.
    pub holder_killed: Crash,
    /// A client was killed between two requests of its acquisition.
    pub acquirer_killed: Crash,
    /// A holder was paused for longer than its lease. `None` if no other client was granted the
    /// lock meanwhile.
    pub paused: Option<Pause>,
    /// A client that was refused the lock and released it anyway freed it.
    pub refused_freed: bool,
    /// The server was replaced by one that had not received the lock yet.
    pub failover: Option<Failover>,
    /// Servers were killed.
    pub down: Option<Down>,
    /// Many clients contended.
    pub crowd: Crowd,
}

/// The effect of a crash on another client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Another client was granted the lock after this number of milliseconds.
    NextAfter(u64),
    /// No other client was granted the lock in `NEVER_MILLIS`.
    Never,
    /// The client cannot be killed between two requests, because an acquisition is one request.
    OneRequest,
}

/// A holder was paused between its read and its write, until another client had held and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Whether the paused holder still reported the lock as held when it continued.
    pub both_claimed: bool,
    /// Whether its late release freed the lock of the other client.
    pub late_freed: bool,
    /// The updates that the late write overwrote.
    pub lost: Lost,
}

/// Updates that were overwritten by a client that had not read them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// On a resource that accepts every write.
    pub unfenced: usize,
    /// On a resource that rejects stale tokens; `None` if the lock has no tokens.
    pub fenced: Option<usize>,
}

/// The server of a lock was replaced by one that had not received the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failover {
    /// For how long two clients reported the lock as held.
    pub both: Both,
    /// The updates that a later write of the first holder overwrote.
    pub lost: Lost,
}

/// For how many milliseconds two clients reported the same lock as held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Both {
    /// They never did.
    Never,
    /// The second client was not granted the lock.
    NotTested,
    /// Until one of them was notified.
    For(u64),
    /// Until the end of the observation.
    WithoutEnd(u64),
}

/// Servers were killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Down {
    /// The grant while a majority ran.
    pub minority: Minority,
    /// Whether a lock was granted without a majority, which must not happen.
    pub majority_granted: bool,
    /// Milliseconds until the holder was notified of its loss; `None` if it never was.
    pub notified_millis: Option<u64>,
}

/// The next grant while a minority of the servers was down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Minority {
    /// There is only one server.
    None,
    /// The next lock was granted after this number of milliseconds.
    GrantedAfter(u64),
    /// No lock was granted.
    NotGranted,
}

/// Many clients contended for one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowd {
    /// How many of them have held the lock.
    pub held: usize,
    /// How often two of them held it at the same time.
    pub overlaps: usize,
    /// The lost updates on the resources.
    pub lost: Lost,
    /// Requests to the servers per holder, since all began to wait; `None` without a server.
    pub requests_each: Option<u64>,
}

/// Runs all cases with one contender.
///
/// # Errors
/// If a case cannot be run, or shows nothing of leasehold, or if a fenced resource accepted a stale
/// token.
pub fn all(mut testbed: BaselineTestbed) -> Result<Row> {
    let row = Row {
        contender: testbed.contender,
        holder_killed: crash(&testbed, Request::Acquire(NEVER_MILLIS))?,
        acquirer_killed: crash(&testbed, Request::Begin)?,
        paused: pause(&testbed)?,
        refused_freed: refused_frees(&testbed)?,
        crowd: crowd(&testbed, CROWD)?,
        failover: failover(&mut testbed)?,
        down: down(&mut testbed)?,
    };

    let untested = row.untested();
    ensure!(
        untested.is_none() || !row.contender.is_leasehold(),
        "{untested:?}"
    );
    Ok(row)
}

impl Row {
    /// Why the figures do not show exclusion: locks that are not granted never overlap.
    pub(super) fn untested(&self) -> Option<String> {
        let held = self.crowd.held;
        if held < CROWD as usize {
            return Some(format!("only {held} of {CROWD} were granted the lock"));
        }
        let both = self.failover?.both;
        (both == Both::NotTested).then(|| "no grant after servers were replaced".to_owned())
    }
}

/// Kills a client after `step`, while another client waits for the lock.
///
/// The step is a whole acquisition, or only its first request.
///
/// # Errors
/// If a process cannot be started or killed, or does not respond.
pub fn crash(testbed: &BaselineTestbed, step: Request) -> Result<Crash> {
    let fixture = testbed.fixture();
    let mut first = fixture.start(1, LEASE)?;
    let mut next = fixture.start(2, LEASE)?;
    let response = first.request(step)?;
    match response.reply {
        Reply::Begun(false) => return Ok(Crash::OneRequest),
        Reply::Begun(true) | Reply::Granted => {}
        _ => bail!("{response:?}"),
    }

    next.send(Request::Acquire(NEVER_MILLIS))?;
    // Usually the second client waits by now. The case is valid without that too.
    sleep(Duration::from_millis(300));

    let killed = first.process.kill()?;
    let response = next.receive()?;
    Ok(match response.reply {
        Reply::Granted => Crash::NextAfter(millis(killed, response.to)),
        _ => Crash::Never,
    })
}

/// Pauses a holder after its read. It writes and releases after another client has held.
///
/// # Errors
/// As [`crash`].
pub fn pause(testbed: &BaselineTestbed) -> Result<Option<Pause>> {
    let fixture = testbed.fixture();
    let mut first = fixture.start(1, LEASE)?;
    let mut next = fixture.start(2, testbed.ample())?;
    let mut third = fixture.start(3, testbed.ample())?;
    first.take()?;
    first.request(Request::Read)?;
    first.process.pause()?;
    let granted = next.request(Request::Acquire(NEVER_MILLIS))?;
    if granted.reply != Reply::Granted {
        first.process.resume()?;
        return Ok(None);
    }

    next.request(Request::Read)?;
    next.request(Request::Write)?;
    // The first holder was paused just before its write.
    first.send(Request::Write)?;
    first.process.resume()?;
    first.receive()?;
    let both_claimed = claims_to_hold(&mut first)? && claims_to_hold(&mut next)?;

    // A late release may return any reply.
    first.request(Request::Release)?;
    let freed = third.request(Request::Acquire(SOON_MILLIS))?;
    ensure_in_time(testbed, &granted)?;
    Ok(Some(Pause {
        both_claimed,
        late_freed: freed.reply == Reply::Granted,
        lost: lost_at(&fixture.resources)?,
    }))
}

/// Releases the lock from a client that was refused it, as code with an unconditional release does.
///
/// Returns whether a third client could then acquire the lock.
///
/// # Errors
/// As [`crash`].
pub fn refused_frees(testbed: &BaselineTestbed) -> Result<bool> {
    let fixture = testbed.fixture();
    let mut holder = fixture.start(1, testbed.ample())?;
    let mut refused = fixture.start(2, testbed.ample())?;
    let mut third = fixture.start(3, testbed.ample())?;
    let granted = holder.take()?;
    let response = refused.request(Request::Acquire(200))?;
    ensure!(
        response.reply != Reply::Granted,
        "two clients hold the lock without any fault: {response:?}"
    );

    refused.request(Request::Release)?;
    let freed = third.request(Request::Acquire(SOON_MILLIS))?;
    ensure_in_time(testbed, &granted)?;
    Ok(freed.reply == Reply::Granted)
}

/// Many processes each acquire the lock once, read, work and write.
///
/// # Errors
/// As [`crash`].
pub fn crowd(testbed: &BaselineTestbed, count: u32) -> Result<Crowd> {
    let fixture = testbed.fixture();
    let mut holder = fixture.start(0, testbed.ample())?;
    let mut all = (1..=count)
        .map(|worker| fixture.start(worker, testbed.ample()))
        .collect::<Result<Vec<_>>>()?;

    holder.take()?;
    let requests_before = testbed.servers.requests();
    all.iter_mut()
        .try_for_each(|one| one.send(Request::Cycle(CROWD_MILLIS, WORK_MILLIS)))?;
    sleep(HELD);

    holder.request(Request::Release)?;
    let mut held = Vec::new();
    for one in &mut all {
        if let Reply::Cycled(granted, until) = one.receive()?.reply {
            held.push((granted, until));
        }
    }

    let requests = testbed.servers.requests().zip(requests_before);
    let each = held.len().max(1) as u64;
    Ok(Crowd {
        held: held.len(),
        overlaps: overlaps(held),
        lost: lost_at(&fixture.resources)?,
        requests_each: requests.map(|(after, before)| after.saturating_sub(before).div_ceil(each)),
    })
}

pub(super) fn claims_to_hold(one: &mut Client) -> Result<bool> {
    Ok(one.request(Request::Check)?.reply == Reply::Holds(true))
}

/// Fails if the lease of the case has ended. Its figures would then prove nothing.
fn ensure_in_time(testbed: &BaselineTestbed, granted: &Response) -> Result<()> {
    let lease = testbed.ample();
    let passed = Duration::from_nanos(now() - granted.from);
    ensure!(
        passed < lease,
        "the machine was too busy: the case took {passed:?}, longer than the lease of {lease:?}"
    );
    Ok(())
}

/// Counts how often a hold began before the previous one had ended.
fn overlaps(mut held: Vec<(u64, u64)>) -> usize {
    held.sort_unstable();
    held.windows(2).filter(|two| two[1].0 < two[0].1).count()
}

/// Reads the writes that the resources accepted.
///
/// Fails if a fenced resource accepted a stale token: that is a bug of the lab, not of the
/// contender.
pub(super) fn lost_at(folder: &Path) -> Result<Lost> {
    let resources = Resources::of(folder)?;
    let register = resources.register.ops()?;
    let log = resources.log.ops()?;

    for fenced in [&register, &log] {
        let stale = regress(fenced);
        ensure!(
            stale.is_none(),
            "a fenced resource accepted a stale token: {stale:?}"
        );
    }
    ensure!(duplicates(&log) == 0, "the log has an entry twice");

    Ok(Lost {
        unfenced: lost_updates(&resources.counter.ops()?),
        fenced: (!register.is_empty()).then(|| lost_updates(&register)),
    })
}

pub(super) fn millis(from: u64, to: u64) -> u64 {
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
