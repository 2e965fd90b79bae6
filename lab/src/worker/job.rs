//! Workers whose job runs once.

use std::time::Duration;

use anyhow::Result;
use leasehold::Locks;
use tokio::time::{sleep, timeout};

use super::REFUSAL_PAUSE;
use super::hold::passes;
use super::recorder::Recorder;
use crate::{EventKind, Job, WorkerConfig, now};

/// Runs a job unless it is done, which counts as a refusal.
pub(super) async fn run(
    config: &WorkerConfig,
    recorder: Recorder<'_>,
    locks: &Locks,
    job: Job,
    cycle: u64,
) -> Result<()> {
    let name = &config.names[usize::from(recorder.name)];
    let (id, length) = match job {
        Job::Id(id) => (id, LONG),
        Job::Due => (now() / PERIOD - cycle % TRIED_BACK, SHORT),
    };
    let labelled = locks
        .once(name)
        .id(id.to_string())
        .label(&config.label(recorder.thread));
    let once = match config.lease_millis {
        Some(millis) => labelled.lease(Duration::from_millis(millis)),
        None => labelled,
    };

    recorder.record(EventKind::Requested)?;
    let limit = config
        .wait_micros
        .map_or(Duration::MAX, Duration::from_micros);
    let guard = match timeout(limit, once.acquire()).await {
        Ok(Ok(Ok(guard))) => guard,
        Ok(Ok(Err(_done))) => return recorder.record(EventKind::Refused),
        Ok(Err(error)) if passes(config, &error) => {
            recorder.record(EventKind::Refused)?;
            sleep(REFUSAL_PAUSE).await;
            return Ok(());
        }
        Ok(Err(error)) => return Err(error.into()),
        Err(_elapsed) => return recorder.record(EventKind::TimedOut),
    };

    recorder.granted(guard.token())?;
    let started = now();
    recorder.record_at(started, EventKind::Started { id })?;
    sleep(length).await;
    match guard.loss() {
        None => recorder.record(EventKind::Releasing)?,
        Some(loss) => recorder.lost(started, loss)?,
    }
    match guard.complete().await {
        Ok(()) => {
            recorder.record(EventKind::Completed { id })?;
            recorder.record(EventKind::Released)
        }
        Err(error) if passes(config, &error) => recorder.record(EventKind::ReleaseUnknown),
        Err(error) => Err(error.into()),
    }
}

/// How long a job with an id takes. A test can kill its worker meanwhile.
const LONG: Duration = Duration::from_millis(100);
/// How long a job that is due takes.
const SHORT: Duration = Duration::from_millis(3);
/// In nanoseconds: how often a job is due.
const PERIOD: u64 = 100_000_000;
/// Each of the last jobs is tried, after its successors too.
const TRIED_BACK: u64 = 4;
