//! The cost of many locks: bytes of each hold, each waiting claim and each released name, and what
//! they cost while nothing happens. docs/scale.md draws conclusions from the figures.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use lab::until;
use lab_servers::Redis;
use tokio::runtime::Builder;

use super::{count, float};
use crate::client::{Client, Cpus, server};
use crate::table::{Goal, Rounds, Table};
use crate::workload::Workload;

const HELD: usize = 100_000;
const WAITING: usize = 10_000;
const RELEASED: usize = 20_000;
/// The requests that are under way at once.
const AT_ONCE: usize = 64;
/// Every claim is renewed at least once in this time.
const IDLE: Duration = Duration::from_secs(30);

pub(super) fn show() -> Result<()> {
    let mut table = Table::new("scale");
    released_names(&mut table)?;

    let server = server();
    let mut holder = Client::start("leasehold", Cpus::Split, &server.url())?;
    let hold = Workload::Hold {
        names: HELD,
        at_once: AT_ONCE,
    };
    let before = memory(&server, &holder)?;
    holder.run(&hold)?;
    let each = since(before, memory(&server, &holder)?, HELD);
    add_memory(&mut table, "hold", each);
    add_idle(&mut table, "100,000 holds", &server, &holder)?;

    let mut waiter = Client::start("leasehold", Cpus::Split, &server.url())?;
    let before = memory(&server, &waiter)?;
    waiter.begin(&Workload::Hold {
        names: WAITING,
        at_once: WAITING,
    })?;
    wait_until_queued(&server)?;
    let each = since(before, memory(&server, &waiter)?, WAITING);
    add_memory(&mut table, "waiting claim behind a hold of its own", each);
    add_idle(
        &mut table,
        "10,000 waiting claims, and the holds",
        &server,
        &waiter,
    )?;
    table.finish()
}

/// What a name costs the server after its last release, until the server forgets it.
fn released_names(table: &mut Table) -> Result<()> {
    let server = server();
    let mut client = Client::start("leasehold", Cpus::Split, &server.url())?;
    let before = server_memory(&server)?;
    let cpu = server.cpu_used();
    client.run(&Workload::Names {
        names: RELEASED,
        each: 1,
    })?;

    let cpu = server.cpu_used().saturating_sub(cpu).as_secs_f64() * 1e6;
    let bytes = server_memory(&server)?.saturating_sub(before);
    let who = "server";
    let each = one(float(bytes) / count(RELEASED));
    table.add(("memory, released name", who, "bytes"), &each, None);
    let each = one(cpu / count(RELEASED));
    table.add(("CPU time, acquire and release", who, "µs"), &each, None);
    Ok(())
}

fn add_memory(table: &mut Table, what: &str, [server, client]: [f64; 2]) {
    let what = format!("memory, {what}");
    table.add((&what, "server", "bytes"), &one(server), None);
    table.add((&what, "client", "bytes"), &one(client), None);
}

/// Adds the CPU time of both processes while no lock changes.
fn add_idle(table: &mut Table, what: &str, server: &Redis, client: &Client) -> Result<()> {
    let [server_before, client_before] = [server.cpu_used(), client.cpu_used()?];
    sleep(IDLE);

    let share = |now: Duration, before| {
        let used: Duration = now.saturating_sub(before);
        one(100.0 * used.as_secs_f64() / IDLE.as_secs_f64())
    };
    let server = share(server.cpu_used(), server_before);
    let client = share(client.cpu_used()?, client_before);
    let what = format!("CPU time, {what}");
    table.add((&what, "server", "%"), &server, Some(Goal::AtMost(1.2)));
    table.add((&what, "client", "%"), &client, None);
    Ok(())
}

fn wait_until_queued(server: &Redis) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let observer = runtime.block_on(leasehold::open(&server.url()))?;
    for name in 0..WAITING {
        until("a claim to wait", || {
            let lock_state = runtime.block_on(observer.inspect(&format!("h{name}")))?;
            Ok((lock_state.waiters().count() > 0).then_some(()))
        })?;
    }
    Ok(())
}

/// The memory of the server and the client, in bytes.
fn memory(server: &Redis, client: &Client) -> Result<[u64; 2]> {
    Ok([server_memory(server)?, client.memory()?])
}

fn server_memory(server: &Redis) -> Result<u64> {
    let info = server.info("memory");
    let used = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    Ok(used.context("no used_memory")?.trim().parse()?)
}

/// Returns what each claim has added.
fn since(before: [u64; 2], now: [u64; 2], claims: usize) -> [f64; 2] {
    [0, 1].map(|side: usize| float(now[side].saturating_sub(before[side])) / count(claims))
}

/// A figure of one round.
fn one(value: f64) -> Rounds {
    let mut rounds = Rounds::default();
    rounds.add(value);
    rounds
}
