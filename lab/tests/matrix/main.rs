//! Tests of the matrix: one for each cell, apart from those that only `cargo xtask lab` runs. A
//! failed test prints the command that repeats it.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use lab::matrix::{Cell, cells, folder};
use libtest_mimic::{Arguments, Failed, Trial};

const WORKER: &str = env!("CARGO_BIN_EXE_worker");
/// How long faults are injected. Each has its least number of effects however short this is.
const TIME: Duration = Duration::from_millis(1_200);

/// The cells of each store that only `cargo xtask lab` runs, because they take long and resemble
/// others.
const LAB_ONLY: &[(&str, &str)] = &[
    (
        "redis",
        "restarted-stale keys-persisted read-only evicted jitter tiny-segments \
         output-buffer-overflow clients-evicted keys-renamed aof-truncated disk-full clock-slow",
    ),
    (
        "redis-cohort",
        "restarted-stale keys-persisted read-only evicted jitter tiny-segments \
         output-buffer-overflow clients-evicted keys-renamed aof-truncated half-open latency \
         scripts-flushed keys-deleted connections-reset packet-loss busy-script loading \
         hostile-names waiter-killed waiter-paused partition-one-way replies-delayed wrong-type \
         writes-refused rights-revoked client-wall-clock killed-at-step paused-at-step \
         out-of-memory network-chaos server-paused restarted-empty connections-killed \
         holder-killed mixed flushall",
    ),
    (
        "sentinel",
        "master-paused master-partition holder-paused hostile-names",
    ),
    ("sentinel-replicas", "master-paused master-partition"),
    ("sentinel-wait", "master-paused master-partition"),
    ("cluster", "master-paused"),
    (
        "replica",
        "jitter packet-loss failover-at-step clock-fast clock-slow client-wall-clock",
    ),
    (
        "plain",
        "killed-at-step holder-paused half-open latency server-paused scripts-flushed \
         keys-deleted restarted-stale read-only evicted connections-reset jitter packet-loss \
         tiny-segments busy-script output-buffer-overflow clients-evicted keys-renamed \
         aof-truncated loading hostile-names disk-full waiter-killed waiter-paused paused-at-step \
         hold-broken partition-one-way replies-delayed keys-persisted wrong-type writes-refused \
         rights-revoked clock-jump-back clock-fast clock-slow client-wall-clock",
    ),
    (
        "redisson",
        "killed-at-step holder-paused half-open latency server-paused scripts-flushed \
         keys-deleted restarted-stale read-only evicted connections-reset jitter packet-loss \
         tiny-segments busy-script output-buffer-overflow clients-evicted keys-renamed \
         aof-truncated loading hostile-names disk-full waiter-killed waiter-paused paused-at-step \
         hold-broken partition-one-way replies-delayed keys-persisted wrong-type writes-refused \
         rights-revoked clock-fast clock-slow client-wall-clock",
    ),
    (
        "redisson-rw",
        "aof-truncated busy-script client-wall-clock clients-evicted clock-fast \
         clock-jump-forward clock-slow connections-killed connections-reset disk-full evicted \
         flushall half-open holder-paused hostile-names jitter keys-deleted keys-persisted \
         keys-renamed killed-at-step latency loading mixed network-chaos out-of-memory \
         output-buffer-overflow packet-loss partition-one-way paused-at-step read-only \
         replies-delayed restarted-empty restarted-stale rights-revoked scripts-flushed \
         server-paused tiny-segments waiter-killed waiter-paused writes-refused wrong-type",
    ),
    (
        "redisson-semaphore",
        "aof-truncated busy-script client-wall-clock clients-evicted clock-fast \
         clock-jump-forward clock-slow connections-killed connections-reset disk-full evicted \
         flushall half-open holder-paused hostile-names jitter keys-deleted \
         killed-at-step latency loading mixed network-chaos out-of-memory \
         output-buffer-overflow packet-loss partition-one-way paused-at-step read-only \
         replies-delayed restarted-empty restarted-stale rights-revoked scripts-flushed \
         server-paused tiny-segments waiter-killed waiter-paused writes-refused wrong-type",
    ),
    (
        "redlock",
        "waiter-killed paused-at-step replies-delayed latency clock-jump-back majority-partition \
         jitter packet-loss tiny-segments busy-script output-buffer-overflow clients-evicted \
         keys-renamed loading hostile-names read-only rights-revoked waiter-paused clock-fast \
         clock-slow client-wall-clock keys-deleted keys-persisted writes-refused",
    ),
    (
        "zookeeper",
        "waiter-killed paused-at-step waiter-paused replies-delayed latency partition-one-way \
         jitter packet-loss tiny-segments hostile-names client-wall-clock",
    ),
    (
        "ensemble",
        "connections-reset partition server-killed server-paused majority-killed leader-paused \
         jitter packet-loss session-closed waiter-killed killed-at-step holder-paused \
         waiter-paused paused-at-step hold-broken half-open partition-one-way replies-lost \
         replies-delayed latency network-chaos mixed partition-all client-wall-clock",
    ),
];

fn main() -> ExitCode {
    let mut trials = vec![Trial::test("lab_only_list_names_existing_cells", || {
        check_lab_only().map_err(|error| failed(&error))
    })];
    for cell in cells().filter(|cell| !is_lab_only(cell)) {
        let name = format!("{}::{}", cell.backend, cell.fault.name.replace('-', "_"));
        trials.push(Trial::test(name, move || {
            run(&cell).map_err(|error| failed(&error))
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The error with all its causes.
fn failed(error: &anyhow::Error) -> Failed {
    format!("{error:?}").into()
}

fn is_lab_only(cell: &Cell) -> bool {
    lab_only().any(|(store, fault)| store == cell.backend.name() && fault == cell.fault.name)
}

fn lab_only() -> impl Iterator<Item = (&'static str, &'static str)> {
    LAB_ONLY
        .iter()
        .flat_map(|(store, faults)| faults.split_whitespace().map(|fault| (*store, fault)))
}

fn check_lab_only() -> Result<()> {
    for (store, fault) in lab_only() {
        let name = format!("{store}/{fault}");
        ensure!(
            cells().any(|cell| cell.name() == name),
            "the cell {name} does not exist"
        );
    }
    Ok(())
}

fn run(cell: &Cell) -> Result<()> {
    let seed = std::env::var("LAB_SEED")
        .map_or_else(|_| Ok(lab::now() % 1_000_000), |seed| seed.parse())?;
    let _slot = Slot::take();
    println!("{}", cell.run(WORKER, seed, TIME, &folder()?)?.line());
    Ok(())
}

/// One of two cells that run at a time. More cells would slow each other down, and the checkers
/// would take the slowness for an effect of the fault.
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
