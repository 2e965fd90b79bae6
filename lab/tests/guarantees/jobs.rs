//! Jobs that run once, and workers that are killed at every step of one.
//!
//! Shows G-58.

use anyhow::{Result, ensure};
use lab::backends::{file, redis};
use lab::{
    Api, CrashAction, CrashPoint, EventKind, Job, Side, Step, Testbed, WorkerConfig, check, holds,
    until,
};
use lab_servers::{Redis, ZooKeeper};

use super::WORKER;

/// How often a worker is killed at each step.
const ROUNDS: u64 = 3;

#[test]
fn killed_jobs_are_completed_once_in_a_folder() -> Result<()> {
    are_completed_once(&file::start(WORKER)?)
}

#[test]
fn killed_jobs_are_completed_once_on_redis() -> Result<()> {
    are_completed_once(&redis::start(WORKER, Redis::setup(), "crash-grace=500ms")?)
}

#[test]
fn killed_jobs_are_completed_once_on_zookeeper() -> Result<()> {
    let server = ZooKeeper::start();
    are_completed_once(&Testbed::at(
        WORKER,
        &format!("{}?session=2s", server.url()),
    )?)
}

/// Where a worker is killed.
#[derive(Clone, Copy, Debug)]
enum Kill {
    At(Step, Side),
    InJob,
}

/// Each step, and how often its job starts: the record decides whether another worker runs it.
const KILLS: [(Kill, usize); 5] = [
    (Kill::At(Step::Enter, Side::Before), 1),
    (Kill::At(Step::Enter, Side::After), 1),
    (Kill::InJob, 2),
    (Kill::At(Step::Complete, Side::Before), 2),
    (Kill::At(Step::Complete, Side::After), 1),
];

fn are_completed_once(testbed: &Testbed) -> Result<()> {
    let mut events = Vec::new();
    let kills = KILLS.iter().cycle().zip(1..=ROUNDS * KILLS.len() as u64);
    for (&(kill, starts), id) in kills {
        let config = WorkerConfig {
            api: Api::Async,
            job: Some(Job::Id(id)),
            ..WorkerConfig::default()
        };
        let mut of_job = killed(testbed, &config, kill)?;
        // Two of them wait for the claim of the dead worker, and one tries an earlier id.
        let earlier = WorkerConfig {
            job: Some(Job::Id(1 + id / 2)),
            ..config.clone()
        };
        let others = [config.clone(), config, earlier].map(|config| testbed.start(config));
        for other in others {
            of_job.extend(other?.finish()?);
        }

        let is_start = |kind: EventKind| kind == EventKind::Started { id };
        let started = of_job.iter().filter(|event| is_start(event.kind)).count();
        ensure!(
            started == starts,
            "{kill:?}: job {id} was started {started} times"
        );
        let record = testbed.run(testbed.locks().record("a"))?;
        let completions = record.completions.iter();
        let completed = completions.filter(|one| one.id == id.to_string()).count();
        ensure!(
            completed == 1,
            "{kill:?}: job {id} is recorded {completed} times"
        );
        events.extend(of_job);
    }
    check::completed_once(&events)?;
    check::all(&events)?;
    ensure!(holds(&events)?.len() as u64 >= ROUNDS * 5, "too few holds");
    Ok(())
}

/// Starts a worker, and returns its events when it is dead.
fn killed(testbed: &Testbed, config: &WorkerConfig, kill: Kill) -> Result<Vec<lab::Event>> {
    let Kill::At(step, side) = kill else {
        let mut worker = testbed.start(config.clone())?;
        worker.wait_for(|kind| matches!(kind, EventKind::Started { .. }))?;
        return worker.kill();
    };
    let crash_point = CrashPoint {
        step,
        side,
        nth: 1,
        action: CrashAction::Kill,
    };
    let mut worker = testbed.start(WorkerConfig {
        crash_point: Some(crash_point),
        ..config.clone()
    })?;
    until("a worker to be killed", || {
        Ok(worker.has_ended()?.then_some(()))
    })?;
    let events = worker.end()?;
    let is_killed = events.iter().any(|event| event.kind == EventKind::Killed);
    ensure!(is_killed, "{kill:?}: the worker ended before this step");
    Ok(events)
}
