//! The time of a hand-over between Redisson and leasehold, on the lock that they share.
//!
//! The time begins when the holder begins to release. It ends when the waiter, in another process,
//! holds. In Redisson's format a release publishes a message, and the waiter then sends a request,
//! so that a hand-over takes one message and one round trip.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};
use lab::{EventKind, HoldWork, Process, RedissonPeer, Start, WorkerConfig, until};
use lab_servers::Redis;

use super::handover::{HOP, hops};
use super::{ROUNDS, p50};
use crate::cpus::{self, Cpus};
use crate::table::{Goal, Rounds, Table};

const WORKER: &str = env!("CARGO_BIN_EXE_worker");
/// The hand-overs of two processes in one round.
const HAND_OVERS: usize = 200;
/// A waiter that has subscribed tries once more before it waits for a message.
const LAST_ATTEMPT: Duration = Duration::from_millis(4);
const CHANNEL: &str = "redisson_lock__channel:{a}";

pub(super) fn show() -> Result<()> {
    let server = cpus::server();
    let mut raw = cpus::clients("raw", 2, Cpus::Split, &server.url())?;
    let mut theirs = [redisson(&server)?, redisson(&server)?];
    let mut ours = [leasehold(&server)?, leasehold(&server)?];
    let mut rounds: [Rounds; 5] = Default::default();

    for _ in 0..ROUNDS {
        let [hop, among_theirs, among_ours, to_theirs, to_ours] = &mut rounds;
        hop.add(p50(hops(&mut raw)?));

        let [one, other] = &mut theirs;
        let (forth, back) = hand_overs(&server, one, other)?;
        among_theirs.add(p50([forth, back].concat()));

        let [one, other] = &mut ours;
        let (forth, back) = hand_overs(&server, one, other)?;
        among_ours.add(p50([forth, back].concat()));

        let (forth, back) = hand_overs(&server, &mut ours[0], &mut theirs[0])?;
        to_theirs.add(p50(forth));
        to_ours.add(p50(back));
    }

    let [hop, among_theirs, among_ours, to_theirs, to_ours] = &rounds;
    let what = "hand-over of an RLock, p50";
    let redisson = "Redisson to Redisson";
    let mut table = Table::new("hops");
    table.add(what, HOP, "µs", hop, None);
    table.add(what, redisson, "µs", among_theirs, None);
    for (who, rounds) in [
        ("leasehold to leasehold", among_ours),
        ("leasehold to Redisson", to_theirs),
        ("Redisson to leasehold", to_ours),
    ] {
        let goal = Some(Goal::AtMost(1.0));
        table.add_beside((what, who, "µs"), rounds, (redisson, among_theirs), goal);
    }
    table.finish()
}

/// A process that takes the lock `a`.
enum Party {
    Redisson(RedissonPeer),
    Leasehold(Box<Process>),
}

fn redisson(server: &Redis) -> Result<Party> {
    let address = format!("redis://{}", server.address());
    Ok(Party::Redisson(RedissonPeer::start_optimised(
        &address, None,
    )?))
}

fn leasehold(server: &Redis) -> Result<Party> {
    let config = WorkerConfig {
        store: format!("{}?dialect=redisson", server.url()),
        cycles: u64::MAX,
        start: Start::OnSignal,
        work: HoldWork::UntilSignal,
        ..WorkerConfig::default()
    };

    let process = Process::start(Path::new(WORKER), config)?;
    Ok(Party::Leasehold(Box::new(process)))
}

impl Party {
    fn begin_to_acquire(&mut self) -> Result<()> {
        match self {
            Self::Redisson(peer) => peer.send("lock lock a"),
            Self::Leasehold(process) => process.send_signal(),
        }
    }

    /// Waits until it holds, and returns since when.
    fn granted(&mut self) -> Result<u64> {
        match self {
            Self::Redisson(peer) => {
                let reply = peer.reply()?;
                peer.time(&reply)
            }
            Self::Leasehold(process) => Ok(process.wait_for_grant()?.at),
        }
    }

    fn begin_to_release(&mut self) -> Result<()> {
        match self {
            Self::Redisson(peer) => peer.send("release lock a"),
            Self::Leasehold(process) => process.send_signal(),
        }
    }

    /// Waits until it has released, and returns when it began to.
    fn released(&mut self) -> Result<u64> {
        match self {
            Self::Redisson(peer) => {
                let reply = peer.reply()?;
                peer.time(&reply)
            }
            Self::Leasehold(process) => {
                let begun = process.wait_for(|kind| *kind == EventKind::Releasing)?;
                process.wait_for(|kind| *kind == EventKind::Released)?;
                Ok(begun.at)
            }
        }
    }
}

/// Hands the lock over many times between two processes. Returns the times from the first process
/// to the other, and those of the way back.
fn hand_overs(server: &Redis, one: &mut Party, other: &mut Party) -> Result<(Vec<u64>, Vec<u64>)> {
    let [mut forth, mut back] = [Vec::new(), Vec::new()];
    one.begin_to_acquire()?;
    one.granted()?;

    for _ in 0..HAND_OVERS / 2 {
        forth.push(hand_over(server, one, other)?);
        back.push(hand_over(server, other, one)?);
    }

    one.begin_to_release()?;
    one.released()?;
    Ok((forth, back))
}

/// Returns the time from the begin of the release until the waiter holds.
fn hand_over(server: &Redis, holder: &mut Party, waiter: &mut Party) -> Result<u64> {
    waiter.begin_to_acquire()?;
    until("the waiter to subscribe", || {
        let counted = server.command(&["PUBSUB", "NUMSUB", CHANNEL]);
        Ok((counted.list()[1].int() > 0).then_some(()))
    })?;
    sleep(LAST_ATTEMPT);

    holder.begin_to_release()?;
    let granted = waiter.granted()?;
    let begun = holder.released()?;
    ensure!(begun < granted, "two hold at once");
    Ok(granted - begun)
}
