//! Every store under nearly every fault that exists for it, for a short time each; `cargo xtask lab --long` takes longer. One that fails
//! prints the line that runs it again.
#![forbid(unsafe_code)]

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use lab::matrix::{cell_named, cells, folder};

const WORKER: &str = env!("CARGO_BIN_EXE_worker");
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
    file: mixed, holder_killed, waiter_killed, killed_at_step, holder_paused, waiter_paused, paused_at_step,
        hold_broken, files_unlinked, file_replaced, disk_full, hostile_names, client_wall_clock;
    redis: network_chaos, mixed, holder_killed, waiter_killed, killed_at_step, holder_paused, waiter_paused,
        paused_at_step, hold_broken, connections_reset, partition, half_open, partition_one_way, replies_lost, replies_delayed,
        latency, server_killed, restarted_empty, server_paused, clock_jump_forward, clock_jump_back, connections_killed,
        scripts_flushed, flushall, keys_deleted, wrong_type, out_of_memory, writes_refused, rights_revoked,
        packet_loss, busy_script, hostile_names, loading, clock_fast, client_wall_clock, clock_forward_days, clock_back_days;
    replica: holder_killed, connections_reset, failover, failover_lagging, failover_skewed;
    plain: network_chaos, mixed, holder_killed, partition, replies_lost, server_killed, restarted_empty, clock_jump_forward,
        connections_killed, flushall, out_of_memory;
    redlock: network_chaos, mixed, holder_killed, killed_at_step, holder_paused, hold_broken, connections_reset,
        partition, half_open, partition_one_way, replies_lost, server_killed, restarted_empty, server_paused, clock_jump_forward,
        connections_killed, scripts_flushed, flushall, majority_killed, majority_paused, aof_truncated,
        out_of_memory, all_clocks_forward, all_clocks_back;
    zookeeper: network_chaos, mixed, holder_killed, killed_at_step, holder_paused, hold_broken, connections_reset,
        partition, half_open, replies_lost, server_killed, server_paused, session_closed, clock_jump_forward;
    ensemble: holder_killed, majority_paused, leader_killed, leader_partition;
}

/// Run by `cargo xtask lab` alone, as they take long and are much like others.
const LAB_ONLY: &[(&str, &[&str])] = &[
    (
        "redis",
        &[
            "restarted-stale",
            "keys-persisted",
            "read-only",
            "evicted",
            "jitter",
            "tiny-segments",
            "output-buffer-overflow",
            "clients-evicted",
            "keys-renamed",
            "aof-truncated",
            "disk-full",
            "clock-slow",
        ],
    ),
    (
        "replica",
        &[
            "jitter",
            "packet-loss",
            "failover-at-step",
            "clock-fast",
            "clock-slow",
            "client-wall-clock",
        ],
    ),
    (
        "plain",
        &[
            "killed-at-step",
            "holder-paused",
            "half-open",
            "latency",
            "server-paused",
            "scripts-flushed",
            "keys-deleted",
            "restarted-stale",
            "read-only",
            "evicted",
            "connections-reset",
            "jitter",
            "packet-loss",
            "tiny-segments",
            "busy-script",
            "output-buffer-overflow",
            "clients-evicted",
            "keys-renamed",
            "aof-truncated",
            "loading",
            "hostile-names",
            "disk-full",
            "waiter-killed",
            "waiter-paused",
            "paused-at-step",
            "hold-broken",
            "partition-one-way",
            "replies-delayed",
            "keys-persisted",
            "wrong-type",
            "writes-refused",
            "rights-revoked",
            "clock-jump-back",
            "clock-fast",
            "clock-slow",
            "client-wall-clock",
        ],
    ),
    (
        "redlock",
        &[
            "waiter-killed",
            "paused-at-step",
            "replies-delayed",
            "latency",
            "clock-jump-back",
            "majority-partition",
            "jitter",
            "packet-loss",
            "tiny-segments",
            "busy-script",
            "output-buffer-overflow",
            "clients-evicted",
            "keys-renamed",
            "loading",
            "hostile-names",
            "read-only",
            "rights-revoked",
            "waiter-paused",
            "clock-fast",
            "clock-slow",
            "client-wall-clock",
            "keys-deleted",
            "keys-persisted",
            "writes-refused",
        ],
    ),
    (
        "zookeeper",
        &[
            "waiter-killed",
            "paused-at-step",
            "waiter-paused",
            "replies-delayed",
            "latency",
            "partition-one-way",
            "jitter",
            "packet-loss",
            "tiny-segments",
            "hostile-names",
            "clock-jump-back",
            "clock-fast",
            "clock-slow",
            "client-wall-clock",
        ],
    ),
    (
        "ensemble",
        &[
            "connections-reset",
            "partition",
            "server-killed",
            "server-paused",
            "majority-killed",
            "leader-paused",
            "jitter",
            "packet-loss",
            "session-closed",
            "waiter-killed",
            "killed-at-step",
            "holder-paused",
            "waiter-paused",
            "paused-at-step",
            "hold-broken",
            "half-open",
            "partition-one-way",
            "replies-lost",
            "replies-delayed",
            "latency",
            "network-chaos",
            "mixed",
            "partition-all",
            "clock-jump-forward",
            "clock-jump-back",
            "clock-fast",
            "clock-slow",
            "client-wall-clock",
        ],
    ),
];

#[test]
fn every_cell_has_a_test_or_is_lab_only() -> Result<()> {
    for cell in cells() {
        let (store, fault) = (cell.backend.name(), cell.fault.name);
        let among = |list: &[(&str, &[&str])], fault: &str| {
            list.iter()
                .any(|(own, faults)| *own == store && faults.contains(&fault))
        };
        let (tested, left) = (
            among(TESTED, &fault.replace('-', "_")),
            among(LAB_ONLY, fault),
        );
        ensure!(
            tested != left,
            "{} must be tested, or be left to the lab",
            cell.name()
        );
    }
    Ok(())
}

fn run(store: &str, fault: &str) -> Result<()> {
    let cell = cell_named(store, &fault.replace('_', "-"))?;
    let seed = std::env::var("LAB_SEED")
        .map_or_else(|_| Ok(lab::now() % 1_000_000), |seed| seed.parse())?;
    let _place = Slot::take();
    println!("{}", cell.run(WORKER, seed, TIME, &folder()?)?.line());
    Ok(())
}

/// One of the two that run at a time: more would slow each other down, and take each other's slowness for a fault's.
struct Slot;

static FREE: Mutex<usize> = Mutex::new(2);
static GIVEN_BACK: Condvar = Condvar::new();

impl Slot {
    fn take() -> Self {
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = GIVEN_BACK
            .wait_while(free, |free| *free == 0)
            .unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Self
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        *FREE.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        GIVEN_BACK.notify_one();
    }
}
