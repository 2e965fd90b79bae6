//! `kill -9` of a holder: the time until the next waiter, in another process, receives its grant.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use lab::{Api, HoldWork, Process, WorkerConfig, until};
use leasehold::Locks;
use tokio::runtime::{Builder, Runtime};

use super::float;
use crate::cpus;
use crate::table::{Goal, Rounds, Table};

/// Each crash grace in seconds, and the number of holders that are killed with it.
const GRACES: [(u64, usize); 2] = [(1, 10), (5, 5)];

pub(super) fn show() -> Result<()> {
    let mut table = Table::new("crash");
    for (grace, times) in GRACES {
        let took = measure(grace, times)?;
        let what = format!("kill -9 to the next holds, crash-grace={grace}s");
        table.add(&what, "leasehold", "s", &took, None);
        let goal = Goal::AtMost(float(grace) + 0.6);
        table.add(
            &format!("{what}, longest"),
            "leasehold",
            "s",
            &took.longest(),
            Some(goal),
        );
    }

    table.finish()
}

fn measure(grace: u64, times: usize) -> Result<Rounds> {
    let server = cpus::server();
    let url = format!("{}?crash-grace={grace}s", server.url());
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let observer = runtime.block_on(leasehold::open(&url))?;
    let mut took = Rounds::default();
    for time in 0..times {
        let mut holder = start(&url, 0)?;
        holder.wait_for_grant()?;
        let mut next = start(&url, 1)?;
        see_waiting(&runtime, &observer)?;
        // Each kill comes at another moment of the periodic tasks.
        sleep(Duration::from_millis(time as u64 * 170));
        let killed = holder.kill_now()?;
        took.add(float(next.wait_for_grant()?.at - killed) / 1e9);
        next.send_signal()?;
        next.finish()?;
    }

    Ok(took)
}

fn start(url: &str, first_thread: u32) -> Result<Process> {
    let config = WorkerConfig {
        store: url.to_owned(),
        api: Api::Async,
        work: HoldWork::UntilSignal,
        first_thread,
        ..WorkerConfig::default()
    };
    Process::start(Path::new(env!("CARGO_BIN_EXE_worker")), config)
}

fn see_waiting(runtime: &Runtime, observer: &Locks) -> Result<()> {
    until("a client to wait", || {
        let lock_state = runtime.block_on(observer.inspect("a"))?;
        Ok((lock_state.waiters().count() > 0).then_some(()))
    })
}
