//! The workers of a run: what each of them takes, and how it waits and holds.

use std::collections::HashMap;
use std::time::Duration;

use lab_servers::Clock;
use leasehold::SemaphoreSupport;

use super::FaultRun;
use crate::faults::Guarantee;
use crate::{Api, HoldWork, INTRUDER_NAME, Job, LockKind, Start, WorkerConfig};

/// The names that most workers take. Several workers may hold the last of them at once, where the
/// store supports that. The others are mutexes.
pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];
/// The index of the name that several workers may hold at once.
const SHARED: usize = 2;
/// The name of the lock that the long holder takes. Its successor waits for it without a limit. A
/// third worker waits briefly, and takes the lock whenever it appears to be free.
const LONG_NAME: &str = "long";
/// The index of the long name, which follows the short names.
pub(crate) const LONG: u16 = 3;
/// The lock that workers take which no fault kills or pauses. They hand it over to each other more
/// often than all others together.
const STEADY_NAME: &str = "steady";
const STEADY: u16 = 4;
/// The lock under which jobs run once. Its index follows that of the intruder's.
const JOBS_NAME: &str = "jobs";
pub(crate) const JOBS: u16 = 6;

/// One worker of a run.
pub(super) struct WorkerSpec {
    api: Api,
    takes: Takes,
    share: SharedLock,
    hold: HoldTime,
    /// The wait limit, where the guarantee of the cell sets none for all workers.
    wait_micros: Option<u64>,
    /// How many times at most it acquires a lock again while it holds it.
    max_nesting: u32,
    threads: u32,
    wires: Wires,
}

/// The names that a worker takes.
#[derive(PartialEq, Eq)]
enum Takes {
    AllShortNames,
    Mutexes,
    LongName,
    SteadyName,
    /// The name of jobs, which it runs once.
    Jobs,
}

/// How a worker takes the lock that several may hold at once.
#[derive(PartialEq, Eq)]
enum SharedLock {
    /// As a reader, or one of two slots.
    Part,
    /// As a writer, or both slots.
    Whole,
}

/// How long a worker holds.
enum HoldTime {
    Zero,
    Millisecond,
    /// Where holds may be lost without notice: longer than a third of a lease, so that the loss is
    /// reported during the hold.
    UntilReported,
    Leases(f64),
}

/// How a worker reaches the servers.
#[derive(PartialEq, Eq)]
enum Wires {
    /// As most others do.
    Common,
    /// Through wires that no other worker uses.
    Own,
}

/// The values that most workers share.
const WORKER: WorkerSpec = WorkerSpec {
    api: Api::Async,
    takes: Takes::AllShortNames,
    share: SharedLock::Part,
    hold: HoldTime::Millisecond,
    wait_micros: None,
    max_nesting: 0,
    threads: 1,
    wires: Wires::Common,
};

/// The workers that faults kill and pause.
pub(super) const WORKERS: [WorkerSpec; 11] = [
    WorkerSpec {
        hold: HoldTime::UntilReported,
        ..WORKER
    },
    WorkerSpec {
        api: Api::Blocking,
        share: SharedLock::Whole,
        ..WORKER
    },
    WorkerSpec {
        takes: Takes::Mutexes,
        max_nesting: 3,
        ..WORKER
    },
    WorkerSpec {
        api: Api::Blocking,
        threads: 2,
        ..WORKER
    },
    WorkerSpec {
        threads: 2,
        ..WORKER
    },
    WorkerSpec {
        api: Api::Blocking,
        share: SharedLock::Whole,
        wait_micros: Some(25_000),
        ..WORKER
    },
    WorkerSpec {
        wait_micros: Some(25_000),
        ..WORKER
    },
    WorkerSpec {
        api: Api::Blocking,
        hold: HoldTime::Zero,
        ..WORKER
    },
    // The long holder. A fault of two leases fits into its hold.
    WorkerSpec {
        takes: Takes::LongName,
        hold: HoldTime::Leases(3.0),
        wires: Wires::Own,
        ..WORKER
    },
    // Its successor.
    WorkerSpec {
        api: Api::Blocking,
        takes: Takes::LongName,
        hold: HoldTime::Leases(0.5),
        ..WORKER
    },
    WorkerSpec {
        takes: Takes::LongName,
        wait_micros: Some(200_000),
        ..WORKER
    },
];

/// Workers that no fault kills or pauses. Their connections still break.
pub(super) const STEADY_WORKERS: [WorkerSpec; 2] = [
    WorkerSpec {
        api: Api::Blocking,
        takes: Takes::SteadyName,
        hold: HoldTime::Zero,
        ..WORKER
    },
    WorkerSpec {
        takes: Takes::SteadyName,
        hold: HoldTime::Zero,
        ..WORKER
    },
];

/// Workers that run jobs once, on stores with records. No fault kills or pauses them.
pub(super) const JOB_WORKERS: [WorkerSpec; 3] = [const {
    WorkerSpec {
        takes: Takes::Jobs,
        ..WORKER
    }
}; 3];

/// The number of the long holder.
pub(super) fn long_holder() -> usize {
    WORKERS
        .iter()
        .position(|worker| worker.wires == Wires::Own)
        .expect("one worker has wires of its own")
}

/// The short names, and the names behind them: the long one, that of the steady workers, the one that
/// only the intruder takes, and that of jobs.
pub(super) fn all_names(short: &[String]) -> Vec<String> {
    let others = [LONG_NAME, STEADY_NAME, INTRUDER_NAME, JOBS_NAME].map(str::to_owned);
    short.iter().cloned().chain(others).collect()
}

/// The short names and the long one.
pub(super) fn with_long_name(short: &[String]) -> Vec<String> {
    all_names(short)[..=short.len()].to_vec()
}

impl WorkerSpec {
    /// The index of the only name of a worker that does not take all short names in turn, and its
    /// pause between two cycles in microseconds. On stores without a queue, others can be granted
    /// during the pause. Without it, the history of the steady workers would be too long.
    fn only_name(&self) -> Option<(u16, u64)> {
        match self.takes {
            Takes::AllShortNames | Takes::Mutexes => None,
            Takes::LongName => Some((LONG, 20_000)),
            Takes::SteadyName => Some((STEADY, 1_000)),
            Takes::Jobs => Some((JOBS, 10_000)),
        }
    }

    fn work(&self, run: &FaultRun) -> HoldWork {
        let time = match self.hold {
            HoldTime::Zero => return HoldWork::Nothing,
            HoldTime::Millisecond => Duration::from_millis(1),
            HoldTime::UntilReported if run.cell.guarantee == Guarantee::TokensOnly => {
                Duration::from_millis(600)
            }
            HoldTime::UntilReported => Duration::from_millis(40),
            HoldTime::Leases(count) => run.lease().mul_f64(count),
        };
        HoldWork::CheckedSleep(u64::try_from(time.as_micros()).expect("a few leases"))
    }
}

impl FaultRun {
    /// The configuration of a worker. Its number decides which wall clock it has.
    pub(super) fn config_of(&self, number: usize, worker: &WorkerSpec) -> WorkerConfig {
        let common = &self.config;
        let names = match worker.takes {
            Takes::AllShortNames => common.names.clone(),
            Takes::Mutexes => common.names[..SHARED].to_vec(),
            Takes::LongName | Takes::SteadyName | Takes::Jobs => all_names(&common.names),
        };
        let only_name = worker.only_name();
        let variables = self.clocks.get(number).map(Clock::environment);

        WorkerConfig {
            store: match worker.wires {
                Wires::Common => common.store.clone(),
                Wires::Own => self.testbed.holder_route.url.clone(),
            },
            api: worker.api,
            names,
            only_name: only_name.map(|(index, _)| index),
            kinds: self.kinds(&worker.share),
            start: only_name.map_or(Start::Immediately, |(_, pause)| Start::After(pause)),
            work: worker.work(self),
            wait_micros: common.wait_micros.or(worker.wait_micros),
            job: (worker.takes == Takes::Jobs).then_some(Job::Due),
            max_nesting: worker.max_nesting,
            cohort: common.cohort.filter(|_| worker.max_nesting == 0),
            // The threads of a pair pass holds on to a third one.
            threads: match (worker.threads, common.cohort) {
                (2, Some(_)) => 3,
                (threads, _) => threads,
            },
            environment: variables
                .into_iter()
                .flatten()
                .map(|(key, value)| (key.to_owned(), value.display().to_string()))
                .collect(),
            ..common.clone()
        }
    }

    /// The kinds of locks of a worker that takes a part of what several may hold at once.
    pub(super) fn kinds_of_parts(&self) -> HashMap<String, LockKind> {
        self.kinds(&SharedLock::Part)
    }

    /// The last short name is a reader-writer lock or a semaphore with two slots. Where a store has
    /// both, the seed decides.
    fn kinds(&self, share: &SharedLock) -> HashMap<String, LockKind> {
        if self.config.cohort.is_some() {
            return HashMap::new();
        }

        let (reader_or_writer, permits) = match share {
            SharedLock::Part => (LockKind::Reader, 1),
            SharedLock::Whole => (LockKind::Writer, 2),
        };
        let slots = LockKind::Slots { permits, slots: 2 };

        let guarantees = self.testbed.locks().guarantees();
        let has_slots = guarantees.semaphore != SemaphoreSupport::Unsupported;
        let kind = match (guarantees.rwlock, has_slots) {
            (false, false) => return HashMap::new(),
            (true, true) if self.seed.is_multiple_of(2) => reader_or_writer,
            (true, false) => reader_or_writer,
            (_, true) => slots,
        };
        HashMap::from([(self.config.names[SHARED].clone(), kind)])
    }
}
