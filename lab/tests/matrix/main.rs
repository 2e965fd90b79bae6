//! Tests of the matrix, one for each cell: the chosen ones, or those that a name on the command
//! line selects. A failed test prints the command that repeats it.

// xtask: busy

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use lab::matrix::{Cell, cells, folder};
use libtest_mimic::{Arguments, Failed, Trial};

const WORKER: &str = env!("CARGO_BIN_EXE_worker");
/// How long faults are injected. Each has its least number of effects however short this is.
const TIME: Duration = Duration::from_millis(600);

/// The cells that run when no name is given: faults that only this store has, and some that a
/// seeded bug or `found.tsv` names, three at most. `cargo xtask nightly` runs all cells.
const CHOSEN: &[(&str, &str)] = &[
    ("file", "holder-killed file-replaced files-unlinked"),
    ("redis", "half-open flushall clock-back-days"),
    ("redis-cohort", "partition server-killed"),
    ("sentinel", "master-killed master-lagging"),
    ("sentinel-replicas", "master-killed"),
    ("sentinel-wait", "master-lagging"),
    ("cluster", "master-killed slot-moved"),
    ("replica", "failover-at-step failover-skewed master-demoted"),
    ("plain", "partition flushall clock-jump-back"),
    ("redisson", "server-killed"),
    (
        "redlock",
        "minority-changes majority-partition all-clocks-back",
    ),
    ("postgres", "half-open partition server-killed"),
    ("zookeeper", "half-open session-closed"),
    ("ensemble", "leader-killed leader-partition majority-paused"),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = vec![Trial::test("chosen_cells_exist", || {
        check_chosen().map_err(|error| failed(&error))
    })];
    for cell in cells().filter(|cell| arguments.filter.is_some() || is_chosen(cell)) {
        let name = format!("{}::{}", cell.backend, cell.fault.name.replace('-', "_"));
        trials.push(Trial::test(name, move || {
            run(&cell).map_err(|error| failed(&error))
        }));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The error with all its causes.
fn failed(error: &anyhow::Error) -> Failed {
    format!("{error:?}").into()
}

fn is_chosen(cell: &Cell) -> bool {
    chosen().any(|(store, fault)| store == cell.backend.name && fault == cell.fault.name)
}

fn chosen() -> impl Iterator<Item = (&'static str, &'static str)> {
    CHOSEN
        .iter()
        .flat_map(|(store, faults)| faults.split_whitespace().map(|fault| (*store, fault)))
}

fn check_chosen() -> Result<()> {
    for (store, fault) in chosen() {
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
        let locked = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = GIVEN_BACK
            .wait_while(locked, |free| *free == 0)
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
