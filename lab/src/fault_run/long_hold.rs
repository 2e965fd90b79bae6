//! The workers that make losses possible: one that holds for three leases behind its own wires, two
//! that wait for the same lock, and one that opens the store during each fault.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{FaultRun, Injection};
use crate::{EventKind, HoldWork, INTRUDER_NAME, Process, Random, Start, WorkerConfig, now};

/// The name of the lock that the long holder takes. Its successor waits for it without a limit. A
/// third worker waits briefly, and takes the lock whenever it appears to be free.
pub const LONG_NAME: &str = "long";
/// In leases: how long the long holder holds. A fault of two leases fits into the hold.
const HOLD_LEASES: u32 = 3;
/// In leases: a hold that is older may end before a fault of one lease does.
const AGE_LEASES_MAX: u32 = 2;
/// In microseconds: the wait limit of the third worker.
const SHORT_WAIT: u64 = 200_000;
/// In microseconds: how long all three workers pause between two cycles. Others can be granted
/// meanwhile on stores without a queue.
const PAUSE: u64 = 20_000;
/// In microseconds: the longest time from the begin of a fault until a new client opens the store.
const OPEN_AFTER_MAX: u64 = 400_000;
/// How many times a new client acquires.
const NEWCOMER_CYCLES: u64 = 3;

/// The figures of the long hold, and the clients that opened the store during faults.
#[derive(Debug)]
pub struct LongHold {
    lease: Duration,
    /// When each new client had opened the store.
    opened: Vec<u64>,
}

impl LongHold {
    /// The long holder, its successor, and the worker that waits briefly.
    pub(super) const WORKERS: usize = 3;

    pub(super) fn of(lease: Duration) -> Self {
        Self {
            lease,
            opened: Vec::new(),
        }
    }

    /// How many new clients opened the store while a fault lasted.
    pub(super) fn opened_during(&self, injections: &[Injection]) -> usize {
        let effects = || {
            injections
                .iter()
                .filter_map(|injection| injection.effect.as_ref())
        };
        let is_during =
            |at: &&u64| effects().any(|effect| effect.since < **at && **at < effect.until);

        self.opened.iter().filter(is_during).count()
    }
}

impl FaultRun {
    /// The configuration of the long holder, of its successor, and of the worker that waits
    /// briefly: the roles 0, 1 and 2.
    pub(super) fn config_of_long_name(&self, role: usize, config: WorkerConfig) -> WorkerConfig {
        let names = with_long_name(&self.config.names);
        let only_name = u16::try_from(names.len() - 1).ok();
        let lease = self.long_hold.lease;
        let config = WorkerConfig {
            names,
            only_name,
            start: Start::After(PAUSE),
            wait_micros: self.config.wait_micros,
            threads: 1,
            ..config
        };

        match role {
            0 => WorkerConfig {
                store: self.testbed.holder_route.url.clone(),
                work: checked_sleep(lease * HOLD_LEASES),
                ..config
            },
            1 => WorkerConfig {
                work: checked_sleep(lease / 2),
                ..config
            },
            _ => WorkerConfig {
                wait_micros: Some(SHORT_WAIT),
                work: HoldWork::CheckedSleep(1_000),
                ..config
            },
        }
    }

    /// Waits until the long holder holds, and its hold lasts for one more lease.
    pub(super) fn wait_for_long_hold(&mut self, bound: Duration) -> Result<()> {
        let age_max = self.long_hold.lease * AGE_LEASES_MAX;
        let begun = Instant::now();

        while self.long_hold_age()?.is_none_or(|age| age > age_max) {
            ensure!(
                begun.elapsed() < bound + age_max,
                "the long holder was not granted for {:.1?}",
                begun.elapsed()
            );
            sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Whether the long holder holds its lock.
    pub(crate) fn is_long_lock_held(&mut self) -> Result<bool> {
        Ok(self.long_hold_age()?.is_some())
    }

    /// Cuts the long holder off from all servers, or ends that.
    pub(crate) fn cut_off_long_holder(&self, is_cut_off: bool) {
        for wire in &self.testbed.holder_route.wires {
            wire.refuse(is_cut_off);
            if is_cut_off {
                wire.partition();
            }
        }
    }

    /// How long the long holder has held its lock; `None` if it does not hold.
    fn long_hold_age(&mut self) -> Result<Option<Duration>> {
        let holder = &mut self.workers[super::PROCESSES];
        let mut granted = None;
        for event in holder.all_events()?.iter().rev() {
            match event.kind {
                EventKind::Granted { .. } => {
                    granted = Some(event.at);
                    break;
                }
                EventKind::ValidUntil { .. } | EventKind::ResourceUsage(_) => {}
                _ => break,
            }
        }
        Ok(granted.map(|at| Duration::from_nanos(now().saturating_sub(at))))
    }

    /// Starts a client that opens the store soon after the begin of the fault.
    pub(super) fn start_newcomer(&self, random: &mut Random) -> Result<Process> {
        self.testbed.start_recording(WorkerConfig {
            open_after: random.below(OPEN_AFTER_MAX),
            cycles: NEWCOMER_CYCLES,
            wait_micros: None,
            work: HoldWork::CheckedSleep(1_000),
            ..self.config.clone()
        })
    }

    /// Waits until the new client was granted every lock once.
    pub(super) fn add_newcomer(&mut self, newcomer: Process, bound: Duration) -> Result<()> {
        let events = newcomer
            .finish_within(bound)
            .context("the client that opened the store during a fault")?;
        let requested = events
            .iter()
            .find(|event| event.kind == EventKind::Requested);

        self.long_hold
            .opened
            .extend(requested.map(|event| event.at));
        self.add_events(events);
        Ok(())
    }
}

fn checked_sleep(time: Duration) -> HoldWork {
    HoldWork::CheckedSleep(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

/// All names of a run, with the one that only the intruder takes.
pub(super) fn with_intruder_name(names: &[String]) -> Vec<String> {
    let mut all = with_long_name(names);
    all.push(INTRUDER_NAME.to_owned());
    all
}

/// The names and, at their end, the long one.
pub(super) fn with_long_name(names: &[String]) -> Vec<String> {
    let long = LONG_NAME.to_owned();
    names.iter().cloned().chain([long]).collect()
}
