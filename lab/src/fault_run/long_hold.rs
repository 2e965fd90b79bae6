//! The long holder, and the client that opens the store during each fault.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{FaultRun, Injection, effects, workload};
use crate::{EventKind, HoldWork, Process, Random, WorkerConfig, now};

/// In leases: a hold that is older may end before a fault of one lease does.
const AGE_LEASES_MAX: u32 = 2;
/// In microseconds: the longest time from the begin of a fault until a new client opens the store.
const OPEN_AFTER_MAX: u64 = 400_000;
/// How many times a new client acquires.
const NEWCOMER_CYCLES: u64 = 3;

/// How many new clients opened the store while a fault lasted.
pub(super) fn opened_during(opened: &[u64], injections: &[Injection]) -> usize {
    let is_during =
        |at: &&u64| effects(injections).any(|effect| effect.since < **at && **at < effect.until);

    opened.iter().filter(is_during).count()
}

impl FaultRun {
    /// Waits until the long holder holds, and its hold lasts for one more lease.
    pub(super) fn wait_for_long_hold(&mut self) -> Result<()> {
        let age_max = self.lease() * AGE_LEASES_MAX;
        let begun = Instant::now();

        while self.long_hold_age()?.is_none_or(|age| age > age_max) {
            ensure!(
                begun.elapsed() < self.cell.bound + age_max,
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
        let holder = &mut self.workers[workload::long_holder()];
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
        self.testbed.start(WorkerConfig {
            open_after: random.below(OPEN_AFTER_MAX),
            cycles: NEWCOMER_CYCLES,
            wait_micros: None,
            work: HoldWork::CheckedSleep(1_000),
            ..self.config.clone()
        })
    }

    /// Waits until the new client was granted every lock once.
    pub(super) fn add_newcomer(&mut self, newcomer: Process) -> Result<()> {
        let events = newcomer
            .finish_within(self.cell.bound)
            .context("the client that opened the store during a fault")?;
        let requested = events
            .iter()
            .find(|event| event.kind == EventKind::Requested);

        self.opened.extend(requested.map(|event| event.at));
        self.add_events(events);
        Ok(())
    }
}
