//! Eight workers. At random moments, about every fiftieth of a second, one of them is killed and
//! replaced.
//!
//! Shows G-01.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab::backends::file;
use lab::{Api, Event, HoldWork, LockKind, Random, Testbed, WorkerConfig, check};

use crate::WORKER;

const WORKERS: usize = 8;
const LENGTH: Duration = Duration::from_secs(10);
/// The longest pause between two kills.
const PAUSE_MAX_MICROS: u64 = 100_000;
/// Fewer holds would mean that the queue was stuck.
const HOLDS_MIN: usize = 100;

#[test]
fn random_kills_keep_mutex_exclusion() -> Result<()> {
    chaos("random_kills_keep_mutex_exclusion", &[LockKind::Mutex])
}

#[test]
fn random_kills_keep_rwlock_exclusion() -> Result<()> {
    chaos(
        "random_kills_keep_rwlock_exclusion",
        &[LockKind::Reader, LockKind::Writer, LockKind::Reader],
    )
}

#[test]
fn random_kills_keep_semaphore_capacity() -> Result<()> {
    chaos(
        "random_kills_keep_semaphore_capacity",
        &[
            LockKind::Slots {
                permits: 1,
                slots: 3,
            },
            LockKind::Slots {
                permits: 2,
                slots: 3,
            },
        ],
    )
}

/// Half of the workers wait for a short time only, so that claims also leave from the middle of the
/// queue.
#[test]
fn random_kills_and_timeouts_keep_exclusion() -> Result<()> {
    let wait_limit = |number: usize| (number % 4 < 2).then_some(300);
    chaos_with("random_kills_and_timeouts_keep_exclusion", |number| {
        WorkerConfig {
            wait_micros: wait_limit(number),
            ..config(LockKind::Mutex, number)
        }
    })
}

fn chaos(test: &str, kinds: &[LockKind]) -> Result<()> {
    chaos_with(test, |number| config(kinds[number % kinds.len()], number))
}

fn chaos_with(test: &str, config: impl Fn(usize) -> WorkerConfig) -> Result<()> {
    let mut random = Random::announced(test);
    let testbed = Testbed::new(WORKER)?;
    let start = |number: usize| testbed.start_recording(config(number));
    let mut workers = (0..WORKERS).map(start).collect::<Result<Vec<_>>>()?;
    let mut dead = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < LENGTH {
        // The pace of the faults. The test does not wait for a condition here.
        sleep(Duration::from_micros(random.below(PAUSE_MAX_MICROS)));
        let killed = usize::try_from(random.below(WORKERS as u64))?;
        workers[killed].kill_now()?;
        dead.push(std::mem::replace(&mut workers[killed], start(killed)?));
    }

    let kills = dead.len();
    workers
        .iter_mut()
        .try_for_each(|worker| worker.kill_now().map(drop))?;
    dead.extend(workers);
    let mut events: Vec<Event> = Vec::new();
    for process in dead {
        events.extend(process.end()?);
    }

    let holds = check::all(&events)?;
    println!("{} holds, {kills} kills", holds.len());
    ensure!(holds.len() >= HOLDS_MIN, "only {} holds", holds.len());
    check_usable(&testbed, config(0).kind)?;
    file::check_clean(&testbed, &["a".to_owned(), "b".to_owned()])
}

fn config(kind: LockKind, number: usize) -> WorkerConfig {
    let api = if number.is_multiple_of(2) {
        Api::Async
    } else {
        Api::Blocking
    };
    let names = vec!["a".to_owned(), "b".to_owned()];

    WorkerConfig {
        names,
        kind,
        api,
        cycles: u64::MAX,
        work: HoldWork::Sleep(200),
        ..WorkerConfig::default()
    }
}

/// Checks that a new worker is granted each lock.
fn check_usable(testbed: &Testbed, kind: LockKind) -> Result<()> {
    for name in ["a", "b"] {
        let config = WorkerConfig {
            names: vec![name.to_owned()],
            kind,
            ..WorkerConfig::default()
        };
        testbed.start(config)?.finish()?;
    }
    Ok(())
}
