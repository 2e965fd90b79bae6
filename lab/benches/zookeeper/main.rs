//! The ZooKeeper store beside its limit and beside peers.
//!
//! The limit is the least that the servers need for a lock, over the same client library.

mod peers;

use std::path::Path;

use anyhow::Result;
use lab::report::{Report, Samples};
use lab::{HoldWork, Process, WorkerConfig, until};
use lab_servers::ZooKeeper;
use tokio::runtime::Builder;

use peers::{Bare, Foreign, Leasehold, Peer, Workload};

/// A figure is the median of this number of rounds.
const ROUNDS: usize = 5;
const PAIRS: usize = 400;
const HAND_OVERS: usize = 200;
const CRASHES: usize = 5;
/// The number of samples in each turn of a peer.
///
/// The peers alternate, so that a slow moment of the machine affects all of them alike.
const TURN: usize = 20;

fn main() -> Result<()> {
    let mut report = Report::new("zookeeper");
    beside_peers(&mut report)?;
    crashes(&mut report)?;
    report.finish()
}

fn beside_peers(report: &mut Report) -> Result<()> {
    let server = ZooKeeper::setup().tick(2_000).start();
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let mut peers: [(&str, Box<dyn Peer + '_>); 4] = [
        ("", Box::new(Bare::connect(&runtime, &server)?)),
        (
            "leasehold",
            Box::new(Leasehold::connect(&runtime, &server)?),
        ),
        ("Curator", Box::new(Foreign::curator(&server)?)),
        ("kazoo", Box::new(Foreign::kazoo(&server)?)),
    ];
    for (task, count, what, limit) in [
        (
            Workload::Pairs,
            PAIRS,
            "acquire and release",
            "create + delete",
        ),
        (
            Workload::HandOvers,
            HAND_OVERS,
            "hand-over",
            "delete to a watch's notice",
        ),
    ] {
        // The first round does not count, because Java's compiler runs in it.
        let rounds = (0..=ROUNDS)
            .map(|_| round(&mut peers, task, count))
            .collect::<Result<Vec<_>>>()?;
        for (number, (name, _)) in peers.iter().enumerate().skip(1) {
            let (leasehold, bare) = median(&rounds[1..], number);
            report.add(&format!("{name}: {what}"), leasehold, limit, bare);
        }
    }

    Ok(())
}

/// Measures the times of each peer, in turns.
fn round(
    peers: &mut [(&str, Box<dyn Peer + '_>)],
    task: Workload,
    count: usize,
) -> Result<Vec<Samples>> {
    let mut times = vec![Vec::new(); peers.len()];
    for _ in 0..count / TURN {
        for ((_, peer), times) in peers.iter_mut().zip(&mut times) {
            times.append(&mut peer.run(task, TURN)?);
        }
    }
    Ok(times.into_iter().map(Samples::from_iter).collect())
}

/// Returns the samples of one peer and of the bare requests, from one round.
///
/// It is the round with the median ratio of the two.
fn median(rounds: &[Vec<Samples>], number: usize) -> (&Samples, &Samples) {
    let p50 = |samples: &Samples| u128::from(samples.spread().p50_ns);
    let mut rounds: Vec<_> = rounds
        .iter()
        .map(|round| (&round[number], &round[0]))
        .collect();
    rounds.sort_by_key(|(peer, bare)| p50(peer) * 1_000 / p50(bare));
    rounds[rounds.len() / 2]
}

/// Measures the time from `kill -9` until the next waiter holds.
///
/// The limit is the session's timeout and a tick.
fn crashes(report: &mut Report) -> Result<()> {
    let server = ZooKeeper::setup().tick(500).start();
    let url = format!("{}?session=2s", server.url());
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let observer = runtime.block_on(leasehold::open(&url))?;
    let mut leasehold = Samples::default();
    let mut limit = Samples::default();
    for _ in 0..CRASHES {
        let mut holder = start(&url, 0)?;
        holder.wait_for_grant()?;
        let mut next = start(&url, 1)?;
        until("a client to wait", || {
            let lock_state = runtime.block_on(observer.inspect("a"))?;
            Ok((lock_state.waiters().count() > 0).then_some(()))
        })?;
        let killed = holder.kill_now()?;
        leasehold.add(next.wait_for_grant()?.at - killed);
        limit.add(2_500_000_000);
        next.send_signal()?;
        next.finish()?;
    }

    report.add(
        "kill -9 to the next holds",
        &leasehold,
        "session of 2 s and a tick",
        &limit,
    );
    Ok(())
}

fn start(url: &str, first_thread: u32) -> Result<Process> {
    let config = WorkerConfig {
        store: url.to_owned(),
        work: HoldWork::UntilSignal,
        first_thread,
        ..WorkerConfig::default()
    };
    Process::start(Path::new(env!("CARGO_BIN_EXE_worker")), config)
}
