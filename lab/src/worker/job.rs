//! Workers whose job runs once.

use std::time::Duration;

use anyhow::Result;
use leasehold::Locks;
use tokio::time::sleep;

use super::hold::passes;
use super::recorder::Recorder;
use crate::{EventKind, WorkerConfig, now};

/// Runs a job unless it is done, which counts as a refusal.
pub(super) async fn run(
    config: &WorkerConfig,
    recorder: Recorder<'_>,
    locks: &Locks,
    id: u64,
) -> Result<()> {
    let name = &config.names[usize::from(recorder.name)];
    let job = locks.once(name).id(id.to_string());
    recorder.record(EventKind::Requested)?;
    let Ok(guard) = job.acquire().await? else {
        return recorder.record(EventKind::Refused);
    };

    recorder.granted(guard.token())?;
    let started = now();
    recorder.record_at(started, EventKind::Started { id })?;
    sleep(JOB).await;
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

/// How long a job takes. A test can kill its worker meanwhile.
const JOB: Duration = Duration::from_millis(100);
