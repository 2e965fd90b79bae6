//! `kill -9` of a holder, alone or with the first waiters: the time until the next waiter, in
//! another process, receives its grant, and the requests and scripts that the server runs
//! meanwhile.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use lab::until;
use lab_servers::{Redis, ZooKeeper};
use leasehold::Locks;
use tokio::runtime::{Builder, Runtime};

use super::commands::Watch;
use super::{ROUNDS, count, float};
use crate::client::{Client, Cpus, server};
use crate::table::{Goal, Rounds, Table};
use crate::workload::Workload;

/// What is killed, and how often.
struct Crash {
    /// The crash grace in seconds.
    grace: u64,
    /// The processes that wait first, and the waiters in each of them.
    processes: usize,
    waiters: usize,
    times: u64,
}

const CRASHES: [Crash; 7] = [
    crash(1, 0, 0, 10),
    crash(5, 0, 0, 5),
    crash(5, 1, 1, 1),
    crash(5, 2, 1, 1),
    crash(5, 5, 1, 1),
    crash(5, 20, 1, 1),
    crash(5, 1, 10_000, 1),
];

const fn crash(grace: u64, processes: usize, waiters: usize, times: u64) -> Crash {
    Crash {
        grace,
        processes,
        waiters,
        times,
    }
}

pub(super) fn show() -> Result<()> {
    let mut table = Table::new("crash");
    for crash in CRASHES {
        let Crash {
            grace,
            processes,
            waiters,
            ..
        } = crash;
        let [took, sent, script] = crash.measure()?;
        let what = format!("holder and {processes} × {waiters} waiters, crash-grace={grace}s");
        // The next waiter looks twice for each claim before its own, at most for a third of the
        // lease. The first look comes before it observes the absence.
        let looks = match processes * waiters {
            0 => 0,
            dying => (2 * (dying + 1)).min(10),
        };
        let most = float(grace) + 0.6 + count(looks);
        let goal = (waiters <= 1).then_some(Goal::AtMost(most));
        let who = "leasehold";
        table.add((&what, who, "s"), &took, None);
        let longest = format!("{what}, longest");
        table.add((&longest, who, "s"), &took.longest(), goal);
        table.add((&format!("{what}, requests"), who, ""), &sent, None);
        let what = format!("{what}, slowest script");
        table.add((&what, who, "µs"), &script, Some(Goal::AtMost(2_000.0)));
    }
    others(&mut table)?;
    table.finish()
}

impl Crash {
    /// Returns the seconds until the next waiter holds, the requests, and the mean time of the kind
    /// of script that takes longest.
    fn measure(&self) -> Result<[Rounds; 3]> {
        let server = server();
        let url = format!("{}?crash-grace={}s", server.url(), self.grace);
        let [mut took, mut sent, mut script]: [Rounds; 3] = Default::default();
        for time in 0..self.times {
            // Each kill comes at another moment of the periodic tasks.
            let pause = Duration::from_millis(1_000 + time * 170);
            let queue = Queue::start(&url, self.processes, self.waiters)?;
            sleep(pause);
            server.command(&["CONFIG", "RESETSTAT"]);
            let watch = Watch::begin(&server)?;
            took.add(queue.take_over()?);
            sent.add(count(watch.end(&server)?));
            script.add(slowest_script(&server));
        }
        Ok([took, sent, script])
    }
}

/// Returns the mean time of the kind of script that takes longest, in microseconds.
fn slowest_script(server: &Redis) -> f64 {
    let stats = server.info("commandstats");
    let scripts = stats
        .lines()
        .filter(|line| line.starts_with("cmdstat_eval"));
    scripts
        .filter_map(|line| {
            line.split(',')
                .find_map(|part| part.strip_prefix("usec_per_call="))
        })
        .filter_map(|micros| micros.parse().ok())
        .fold(0.0, f64::max)
}

/// Adds the time of stores that detect a crash by themselves. The limit of ZooKeeper is the
/// session's timeout and a tick.
fn others(table: &mut Table) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = format!("file:{}", folder.path().display());
    let server = ZooKeeper::setup().tick(500).start();
    let zookeeper = format!("{}?session=2s", server.url());

    for (what, url, processes, most) in [
        ("holder, file store", &file, 0, None),
        ("holder and first waiter, file store", &file, 1, None),
        ("holder, ZooKeeper, session=2s", &zookeeper, 0, Some(2.5)),
    ] {
        let mut took = Rounds::default();
        for _ in 0..ROUNDS {
            took.add(Queue::start(url, processes, processes)?.take_over()? * 1e3);
        }
        let goal = most.map(|seconds: f64| Goal::AtMost(seconds * 1e3));
        table.add((what, "leasehold", "ms"), &took, goal);
    }
    Ok(())
}

/// A holder, the waiters that are killed together with it, and the next waiter.
struct Queue {
    dying: Vec<Client>,
    next: Client,
}

impl Queue {
    fn start(url: &str, processes: usize, waiters: usize) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let observer = runtime.block_on(leasehold::open(url))?;
        let hold = Workload::Hold {
            names: 1,
            at_once: 1,
        };
        let mut holder = start(url)?;
        holder.run(&hold)?;

        let mut dying = vec![holder];
        for process in 1..=processes {
            let mut client = start(url)?;
            client.begin(&Workload::Contend {
                name: "h0".to_owned(),
                threads: waiters,
                hold_micros: 0,
                until: u64::MAX,
            })?;
            dying.push(client);
            wait_until_queued(&runtime, &observer, process * waiters)?;
        }

        let mut next = start(url)?;
        next.begin(&hold)?;
        wait_until_queued(&runtime, &observer, processes * waiters + 1)?;
        Ok(Self { dying, next })
    }

    /// Kills the processes, and returns the seconds until the next waiter holds.
    fn take_over(mut self) -> Result<f64> {
        let mut killed = 0;
        // The holder dies last, so that no dying waiter is granted the lock.
        for client in self.dying.into_iter().rev() {
            killed = client.kill()?;
        }
        let granted = self.next.end()?;
        let granted = granted.first().context("the reply is one moment")?;
        Ok(float(granted - killed) / 1e9)
    }
}

fn start(url: &str) -> Result<Client> {
    Client::start("leasehold", Cpus::Split, url)
}

fn wait_until_queued(runtime: &Runtime, observer: &Locks, waiters: usize) -> Result<()> {
    until("all clients to wait", || {
        let lock_state = runtime.block_on(observer.inspect("h0"))?;
        Ok((lock_state.waiters().count() >= waiters).then_some(()))
    })
}
