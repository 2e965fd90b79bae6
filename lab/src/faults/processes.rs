//! Faults of the workers.

use std::time::Duration;

use anyhow::{Context, Result};

use super::{ended_now, instant, wait};
use crate::backends::replica::{Pair, fail_over};
use crate::fault_run::{Effect, FaultRun};
use crate::{
    Api, CrashAction, CrashPoint, EventKind, HoldWork, Random, Side, Step, WorkerConfig, now,
    until_within,
};

pub(super) fn holds(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Granted { .. } | EventKind::ValidUntil { .. }
    )
}

pub(super) fn waits(kind: &EventKind) -> bool {
    *kind == EventKind::Requested
}

pub(super) fn killed(
    run: &mut FaultRun,
    random: &mut Random,
    which: fn(&EventKind) -> bool,
) -> Result<Option<Effect>> {
    let Some(number) = run.pause_in_state(random, which)? else {
        return Ok(None);
    };
    let thread = run.workers[number].first_thread();
    let at = run.kill_and_replace(number)?;
    Ok(Some(super::at_moment(at, format!("thread {thread}"))))
}

/// Pauses for the time of the plan.
pub(super) fn paused(
    run: &mut FaultRun,
    random: &mut Random,
    which: fn(&EventKind) -> bool,
) -> Result<Option<Effect>> {
    let time = run.plan.length;
    let Some(number) = run.pause_in_state(random, which)? else {
        return Ok(None);
    };
    let since = now();
    wait(time);
    run.workers[number].resume()?;

    Ok(Some(ended_now(
        since,
        format!("thread {} for {time:?}", run.workers[number].first_thread()),
    )))
}

pub(super) fn killed_at_step(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let crash_point = with_crash_point(run, random, CrashAction::Kill);
    let mut worker = run
        .testbed
        .start(spawn_with_crash_point(run, crash_point))?;
    until_within(STEP_MAX, "a step", || Ok(worker.has_ended()?.then_some(())))?;

    let events = worker.end()?;
    let killed = events
        .iter()
        .rev()
        .find(|event| event.kind == EventKind::Killed);
    let at = killed.context("a worker ended before its step")?.at;
    run.add_events(events);

    Ok(Some(super::at_moment(at, shown(crash_point))))
}

pub(super) fn paused_at_step(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let time = run.plan.length;
    stopped_at_step(run, random, |_, evidence| {
        let since = now();
        wait(time);
        Ok(ended_now(since, evidence))
    })
}

/// Fails over while a worker is stopped at a step.
pub(super) fn failover_at_step(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let effect = stopped_at_step(run, random, |run, evidence| {
        fail_over(&mut run.testbed)?;
        Ok(instant(evidence))
    })?;
    if effect.is_some() {
        run.testbed.servers_mut::<Pair>()?.restore()?;
    }
    Ok(effect)
}

/// Injects a fault while a worker is stopped at a step. The worker then has a few cycles left, and
/// waits among the others.
fn stopped_at_step(
    run: &mut FaultRun,
    random: &mut Random,
    inject: impl FnOnce(&mut FaultRun, String) -> Result<Effect>,
) -> Result<Option<Effect>> {
    let crash_point = with_crash_point(run, random, CrashAction::Stop);
    let mut worker = run.testbed.start(WorkerConfig {
        cycles: u64::from(crash_point.nth) + 1,
        ..spawn_with_crash_point(run, crash_point)
    })?;

    until_within(STEP_MAX, "a step", || Ok(worker.is_paused()?.then_some(())))?;
    // A worker that never had to wait ends before that step.
    let effect = if worker.has_ended()? {
        None
    } else {
        let effect = inject(run, shown(crash_point))?;
        worker.resume()?;
        Some(effect)
    };
    run.add_events(worker.finish()?);
    Ok(effect)
}

/// How long it may take until a worker reaches a step.
const STEP_MAX: Duration = Duration::from_secs(30);

/// Chooses every step before and after in turn, starting with the seed.
fn with_crash_point(run: &FaultRun, random: &mut Random, action: CrashAction) -> CrashPoint {
    let at = run.injections.len() + usize::try_from(run.seed % 8).expect("a few");
    let sides = [Side::Before, Side::After];
    let step = Step::ALL[(at / 2) % Step::ALL.len()];
    // Only the first renewal comes soon enough.
    let round = if step == Step::Renew {
        1
    } else {
        1 + u32::try_from(random.below(3)).expect("a few")
    };

    CrashPoint {
        step,
        side: sides[at % 2],
        nth: round,
        action,
    }
}

/// A worker must hold for longer if its crash point is a renewal.
fn spawn_with_crash_point(run: &FaultRun, crash_point: CrashPoint) -> WorkerConfig {
    let millis = if crash_point.step == Step::Renew {
        1_000
    } else {
        3
    };
    WorkerConfig {
        api: Api::Async,
        crash_point: Some(crash_point),
        wait_micros: None,
        work: HoldWork::CheckedSleep(millis * 1_000),
        ..run.config.clone()
    }
}

fn shown(crash_point: CrashPoint) -> String {
    format!(
        "{:?} {:?}, number {}",
        crash_point.side, crash_point.step, crash_point.nth
    )
    .to_lowercase()
}

pub(super) fn hold_broken(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let name = run.draw_name(random);
    for _ in 0..200 {
        let testbed = &run.testbed;
        let Some(token) = testbed
            .inspect(&name)?
            .holders()
            .next()
            .and_then(leasehold::Entry::token)
        else {
            continue;
        };
        // The hold ends before the request returns.
        let since = now();
        if testbed
            .run(testbed.locks().break_hold(&name, token))?
            .is_some()
        {
            return Ok(Some(ended_now(since, format!("{name}: token {token}"))));
        }
    }

    Ok(None)
}
