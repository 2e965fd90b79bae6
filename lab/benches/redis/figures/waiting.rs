//! The requests of clients that wait, and the time of a takeover after a crash.
//!
//! The takeover is measured when the first waiters are killed together with the holder.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use lab::{Api, HoldWork, Process, WorkerConfig, until};
use lab_servers::Redis;
use leasehold::Locks;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::commands::Watch;
use super::redisson;
use super::{count, float};
use crate::cpus::{self, Cpus};
use crate::peers::nanos;
use crate::table::{Goal, Rounds, Table};
use crate::workload::Workload;

/// The number of clients that wait, and the requests per second that each may send.
const WAITING: [(usize, f64); 2] = [(60, 0.2), (1_000, 0.15)];
/// More than two thirds of a lease, so that all clients renew twice.
pub(super) const LASTS: Duration = Duration::from_secs(21);
/// The number of first waiters that are killed together with the holder.
const DYING: [u64; 5] = [0, 1, 2, 5, 20];
const GRACE: u64 = 5;
const LEASE: u64 = 30;

pub(super) fn show() -> Result<()> {
    let mut table = Table::new("waiting");
    for (waiters, most) in WAITING {
        let each = rate(waiters)?;
        let what = format!("requests per second and waiter, {waiters} clients wait");
        table.add(&what, "leasehold", "/s", &each, Some(Goal::AtMost(most)));
    }
    table.add(
        "requests per second and waiter, 60 threads wait",
        "redis-py",
        "/s",
        &rate_of_redis_py(60)?,
        None,
    );
    table.add(
        "requests per second and waiter, 60 clients wait",
        "Redisson RLock",
        "/s",
        &redisson::rate("lock", 60)?,
        None,
    );
    table.add(
        "requests per second and waiter, 60 clients wait",
        "Redisson RFairLock",
        "/s",
        &redisson::rate("fair", 60)?,
        None,
    );

    for dying in DYING {
        let (took, sent) = redisson::takeover(dying)?;
        let what = format!("kill -9 of holder and {dying} waiters, watchdog 30 s");
        let rows = [
            ("to the next holds", "s", took),
            ("requests until then", "", sent),
        ];
        for (figure, unit, rounds) in rows {
            table.add(
                &format!("{what}, {figure}"),
                "Redisson RLock",
                unit,
                &rounds,
                None,
            );
        }
    }

    for dying in DYING {
        let (took, sent) = takeover(dying)?;
        let what = format!("kill -9 of holder and first {dying} waiters, grace {GRACE} s");
        let looks = if dying == 0 {
            0
        } else {
            (2 * (dying + 1)).min(LEASE / 3)
        };
        // The first polls come before a waiter observes the absence.
        let most = float(GRACE) + 0.6 + float(looks);
        table.add(
            &format!("{what}, to the next holds"),
            "leasehold",
            "s",
            &took,
            Some(Goal::AtMost(most)),
        );
        table.add(
            &format!("{what}, requests until then"),
            "leasehold",
            "",
            &sent,
            None,
        );
    }
    table.finish()
}

/// Measures the requests per second and waiter.
///
/// Each waiter is a client of its own, with its own connections.
fn rate(waiters: usize) -> Result<Rounds> {
    let server = cpus::server();
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let mut rounds = Rounds::default();

    runtime.block_on(async {
        let holder = leasehold::open(&server.url()).await?;
        let held = holder
            .mutex("a")
            .lease(Duration::from_secs(3_600))
            .acquire()
            .await?;
        let mut waiting = JoinSet::new();
        for _ in 0..waiters {
            let client = leasehold::open(&server.url()).await?;
            waiting.spawn(async move { client.mutex("a").acquire().await });
        }
        while holder.inspect("a").await?.waiters().count() < waiters {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let watch = Watch::begin(&server)?;
        tokio::time::sleep(LASTS).await;
        rounds.add(count(watch.end(&server)?) / count(waiters) / LASTS.as_secs_f64());
        waiting.shutdown().await;
        held.release().await?;
        anyhow::Ok(())
    })?;
    Ok(rounds)
}

/// Measures the same for redis-py, which sends a request every 100 ms.
fn rate_of_redis_py(waiters: usize) -> Result<Rounds> {
    const LASTS: Duration = Duration::from_secs(5);
    let server = cpus::server();
    server.command(&["SET", "c", "held", "PX", "60000"]);

    let mut clients = cpus::clients("redis_py", 1, Cpus::Split, &server.url())?;
    let client = clients.first_mut().context("one client was started")?;
    let until = lab::now() + nanos(LASTS + Duration::from_secs(2));
    client.begin(&Workload::Contend {
        threads: waiters,
        hold_micros: 0,
        think_micros: 0,
        until,
    })?;
    sleep(Duration::from_secs(1));

    let watch = Watch::begin(&server)?;
    sleep(LASTS);
    let mut rounds = Rounds::default();
    rounds.add(count(watch.end(&server)?) / count(waiters) / LASTS.as_secs_f64());
    server.command(&["DEL", "c"]);
    client.end()?;
    Ok(rounds)
}

/// Measures the time until the next waiter holds, and the requests that all clients send meanwhile.
fn takeover(dying: u64) -> Result<(Rounds, Rounds)> {
    let server = cpus::server();
    let url = format!("{}?crash-grace={GRACE}s", server.url());
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let observer = runtime.block_on(leasehold::open(&url))?;
    let mut holder = start(&url, 0)?;
    holder.wait_for_grant()?;

    let mut waiters = Vec::new();
    for number in 0..dying {
        waiters.push(start(&url, u32::try_from(number)? + 1)?);
        see_waiting(&runtime, &observer, waiters.len())?;
    }

    let mut next = start(&url, 1_000)?;
    see_waiting(&runtime, &observer, waiters.len() + 1)?;
    drop(observer);
    next_second(&server);

    let watch = Watch::begin(&server)?;
    let killed = holder.kill_now()?;
    for mut waiter in waiters {
        waiter.kill_now()?;
    }

    let mut took = Rounds::default();
    let mut sent = Rounds::default();
    took.add(float(next.wait_for_grant()?.at - killed) / 1e9);
    sent.add(count(watch.end(&server)?));
    next.send_signal()?;
    next.finish()?;
    Ok((took, sent))
}

/// Waits until the server has handled the observer's last requests.
fn next_second(server: &Redis) {
    server.command(&["PING"]);
    sleep(Duration::from_secs(1));
}

fn start(url: &str, first_thread: u32) -> Result<Process> {
    let config = WorkerConfig {
        store: url.to_owned(),
        api: Api::Async,
        work: HoldWork::UntilSignal,
        first_thread,
        lease_millis: Some(LEASE * 1_000),
        ..WorkerConfig::default()
    };
    Process::start(Path::new(env!("CARGO_BIN_EXE_worker")), config)
}

fn see_waiting(runtime: &Runtime, observer: &Locks, waiters: usize) -> Result<()> {
    until("all clients to wait", || {
        let lock_state = runtime.block_on(observer.inspect("a"))?;
        Ok((lock_state.waiters().count() >= waiters).then_some(()))
    })
}
