//! Every store under nearly every fault that exists for it, for a short time each; `cargo xtask lab --long` takes longer. One that fails
//! prints the line that runs it again.
#![forbid(unsafe_code)]

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use lab::matrix::{cell_named, cells, folder};

const TAKER: &str = env!("CARGO_BIN_EXE_taker");
/// Faults are done for so long, and at least twice.
const TIME: Duration = Duration::from_millis(1_200);

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
    file: mixed, holder_killed, waiter_killed, killed_at_step, holder_stopped, waiter_stopped, stopped_at_step,
        hold_broken, files_unlinked, file_replaced, disk_full, hostile_names, own_wall_clock;
    redis: bad_wire, mixed, holder_killed, waiter_killed, killed_at_step, holder_stopped, waiter_stopped,
        stopped_at_step, hold_broken, connections_reset, cut, half_open, one_way, replies_lost, replies_late,
        slow, server_killed, restarted_empty, server_stopped, clock_forward, clock_back, connections_killed,
        scripts_flushed, emptied, keys_deleted, wrong_type, out_of_memory, writes_refused, rights_revoked,
        lossy, busy, hostile_names, loading, clock_fast, own_wall_clock, clock_forward_days, clock_back_days;
    replica: holder_killed, connections_reset, failover, failover_lagging, failover_skewed;
    plain: bad_wire, mixed, holder_killed, cut, replies_lost, server_killed, restarted_empty, clock_forward,
        connections_killed, emptied, out_of_memory;
    redlock: bad_wire, mixed, holder_killed, killed_at_step, holder_stopped, hold_broken, connections_reset,
        cut, half_open, one_way, replies_lost, server_killed, restarted_empty, server_stopped, clock_forward,
        connections_killed, scripts_flushed, emptied, majority_killed, majority_stopped, aof_truncated,
        out_of_memory, all_clocks_forward, all_clocks_back;
    zookeeper: bad_wire, mixed, holder_killed, killed_at_step, holder_stopped, hold_broken, connections_reset,
        cut, half_open, replies_lost, server_killed, server_stopped, session_closed, clock_forward;
    ensemble: holder_killed, majority_stopped, leader_killed, leader_parted;
}

/// Run by `cargo xtask lab` alone, as they take long and are much like others.
const LEFT_TO_THE_LAB: &[(&str, &[&str])] = &[
    (
        "redis",
        &[
            "restarted-stale",
            "keys-persisted",
            "read-only",
            "evicted",
            "jitter",
            "dribble",
            "buffers-dropped",
            "clients-evicted",
            "keys-renamed",
            "aof-truncated",
            "disk-full",
            "clock-slow",
        ],
    ),
    ("replica", &["jitter", "lossy", "failover-at-step", "clock-fast", "clock-slow", "own-wall-clock"]),
    (
        "plain",
        &[
            "killed-at-step",
            "holder-stopped",
            "half-open",
            "slow",
            "server-stopped",
            "scripts-flushed",
            "keys-deleted",
            "restarted-stale",
            "read-only",
            "evicted",
            "connections-reset",
            "jitter",
            "lossy",
            "dribble",
            "busy",
            "buffers-dropped",
            "clients-evicted",
            "keys-renamed",
            "aof-truncated",
            "loading",
            "hostile-names",
            "disk-full",
            "waiter-killed",
            "waiter-stopped",
            "stopped-at-step",
            "hold-broken",
            "one-way",
            "replies-late",
            "keys-persisted",
            "wrong-type",
            "writes-refused",
            "rights-revoked",
            "clock-back",
            "clock-fast",
            "clock-slow",
            "own-wall-clock",
        ],
    ),
    (
        "redlock",
        &[
            "waiter-killed",
            "stopped-at-step",
            "replies-late",
            "slow",
            "clock-back",
            "majority-cut",
            "jitter",
            "lossy",
            "dribble",
            "busy",
            "buffers-dropped",
            "clients-evicted",
            "keys-renamed",
            "loading",
            "hostile-names",
            "read-only",
            "rights-revoked",
            "waiter-stopped",
            "clock-fast",
            "clock-slow",
            "own-wall-clock",
            "keys-deleted",
            "keys-persisted",
            "writes-refused",
        ],
    ),
    (
        "zookeeper",
        &[
            "waiter-killed",
            "stopped-at-step",
            "waiter-stopped",
            "replies-late",
            "slow",
            "one-way",
            "jitter",
            "lossy",
            "dribble",
            "hostile-names",
            "clock-back",
            "clock-fast",
            "clock-slow",
            "own-wall-clock",
        ],
    ),
    (
        "ensemble",
        &[
            "connections-reset",
            "cut",
            "server-killed",
            "server-stopped",
            "majority-killed",
            "leader-stopped",
            "jitter",
            "lossy",
            "session-closed",
            "waiter-killed",
            "killed-at-step",
            "holder-stopped",
            "waiter-stopped",
            "stopped-at-step",
            "hold-broken",
            "half-open",
            "one-way",
            "replies-lost",
            "replies-late",
            "slow",
            "bad-wire",
            "mixed",
            "all-parted",
            "clock-forward",
            "clock-back",
            "clock-fast",
            "clock-slow",
            "own-wall-clock",
        ],
    ),
];

#[test]
fn no_cell_is_missing() -> Result<()> {
    for cell in cells() {
        let (store, fault) = (cell.store.name(), cell.fault.name);
        let among = |list: &[(&str, &[&str])], fault: &str| {
            list.iter().any(|(own, faults)| *own == store && faults.contains(&fault))
        };
        let (tested, left) = (among(TESTED, &fault.replace('-', "_")), among(LEFT_TO_THE_LAB, fault));
        ensure!(tested != left, "{} must be tested, or be left to the lab", cell.name());
    }
    Ok(())
}

fn run(store: &str, fault: &str) -> Result<()> {
    let cell = cell_named(store, &fault.replace('_', "-"))?;
    let seed = std::env::var("LAB_SEED").map_or_else(|_| Ok(lab::now() % 1_000_000), |seed| seed.parse())?;
    let _place = Place::take();
    println!("{}", cell.run(TAKER, seed, TIME, &folder()?)?.line());
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
