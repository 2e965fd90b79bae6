//! Every store under every fault that exists for it, for a short time each; `cargo xtask lab --long` takes longer. One that fails
//! prints the line that runs it again.
#![forbid(unsafe_code)]

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use lab::matrix::{cell_named, cells};

const TAKER: &str = env!("CARGO_BIN_EXE_taker");
/// Faults are done for so long, and at least twice.
const TIME: Duration = Duration::from_millis(1_500);

/// One test for each cell, and a list of them.
macro_rules! cells {
    ($($store:ident: $($fault:ident),*;)*) => {
        $(mod $store {
            $(#[test]
            fn $fault() -> anyhow::Result<()> {
                crate::run(stringify!($store), stringify!($fault))
            })*
        })*

        const TESTED: &[(&str, &[&str])] = &[$((stringify!($store), &[$(stringify!($fault)),*])),*];
    };
}

cells! {
    file: mixed, holder_killed, waiter_killed, killed_at_step, holder_stopped, waiter_stopped, stopped_at_step, hold_broken,
        files_unlinked, file_replaced, disk_full;
    redis: bad_wire, mixed, holder_killed, waiter_killed, killed_at_step, holder_stopped, waiter_stopped, stopped_at_step, hold_broken,
        connections_reset, cut, half_open, one_way, replies_lost, replies_late, slow, server_killed, restarted_empty,
        server_stopped, clock_forward, clock_back, connections_killed, scripts_flushed, emptied, keys_deleted,
        wrong_type, out_of_memory, writes_refused, rights_revoked;
    replica: holder_killed, connections_reset, failover, failover_lagging;
    plain: bad_wire, mixed, holder_killed, killed_at_step, holder_stopped, connections_reset, cut, half_open, replies_lost, slow,
        server_killed, restarted_empty, server_stopped, clock_forward, connections_killed, scripts_flushed, emptied,
        keys_deleted, out_of_memory;
    redlock: bad_wire, mixed, holder_killed, waiter_killed, killed_at_step, holder_stopped, stopped_at_step, hold_broken,
        connections_reset, cut, half_open, one_way, replies_lost, replies_late, slow, server_killed, restarted_empty,
        server_stopped, clock_forward, clock_back, connections_killed, scripts_flushed, emptied, majority_killed,
        majority_stopped, majority_cut;
    zookeeper: bad_wire, mixed, holder_killed, waiter_killed, killed_at_step, holder_stopped, waiter_stopped, stopped_at_step,
        hold_broken, connections_reset, cut, half_open, one_way, replies_lost, replies_late, slow, server_killed,
        server_stopped, session_closed;
    ensemble: holder_killed, connections_reset, cut, server_killed, server_stopped, majority_killed, majority_stopped,
        leader_killed, leader_stopped, leader_parted;
}

#[test]
fn no_cell_is_missing() -> Result<()> {
    for cell in cells() {
        let (store, fault) = (cell.store.name(), cell.fault.name.replace('-', "_"));
        let tested = TESTED.iter().any(|(own, faults)| *own == store && faults.contains(&fault.as_str()));
        ensure!(tested, "{} has no test", cell.name());
    }
    Ok(())
}

fn run(store: &str, fault: &str) -> Result<()> {
    let cell = cell_named(store, &fault.replace('_', "-"))?;
    let seed = std::env::var("LAB_SEED").map_or_else(|_| Ok(lab::now() % 1_000_000), |seed| seed.parse())?;
    let _place = Place::take();
    println!("{}", cell.run(TAKER, seed, TIME, None)?.line());
    Ok(())
}

/// One of the two that run at a time: more would slow each other down, and take each other's slowness for a fault's.
struct Place;

static FREE: Mutex<usize> = Mutex::new(2);
static GIVEN_BACK: Condvar = Condvar::new();

impl Place {
    fn take() -> Self {
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = GIVEN_BACK.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Self
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *FREE.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        GIVEN_BACK.notify_one();
    }
}
