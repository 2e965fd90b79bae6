//! A hold, from its grant to its end.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use leasehold::{Error, LossReason, ReentrantGuard, Token, blocking};

use super::recorder::Recorder;
use super::work;
use crate::{EventKind, HoldWork, OnError, WorkerConfig, now};

/// How often a checked hold is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// A checked hold records its validity at each check of this number.
const RECORD_EVERY: u32 = 20;

/// A guard of either API.
pub(super) trait Held {
    fn token(&self) -> Token;
    fn remaining(&self) -> Duration;
    fn loss(&self) -> Option<LossReason>;

    /// Acquires the lock again, if the guard is reentrant.
    fn nest(&self, _: Recorder<'_>) -> Result<Vec<ReentrantGuard>> {
        Ok(Vec::new())
    }

    /// Releases the nested guards until `_kept` are left.
    fn unnest(&self, _: Recorder<'_>, _: &mut Vec<ReentrantGuard>, _kept: usize) -> Result<()> {
        Ok(())
    }
}

/// Records the grant, does the work, and records how the hold ends.
pub(super) fn hold(config: &WorkerConfig, recorder: Recorder<'_>, guard: &impl Held) -> Result<()> {
    // The validity may end before the grant is recorded. The hold was then valid at no known time.
    let granted = recorder.granted(guard.token())?;
    let good = record_validity(recorder, guard)?.unwrap_or(granted);

    // Some guards are released before the work, which the others must protect, and the rest after
    // it.
    let mut inner = guard.nest(recorder)?;
    let half = inner.len() / 2;
    guard.unnest(recorder, &mut inner, half)?;

    let good = match config.work {
        HoldWork::CheckedSleep(micros) => {
            watch(recorder, guard, Duration::from_micros(micros))?.unwrap_or(good)
        }
        _ => work(config).map(|()| good)?,
    };

    guard.unnest(recorder, &mut inner, 0)?;
    let at = now();
    match guard.loss() {
        None => recorder.record_at(at, EventKind::Releasing),
        Some(loss) => {
            recorder.lost(good, loss)?;
            // A lost hold stays lost. A validity recorded here would contradict the history.
            record_validity(recorder, guard).map(drop)
        }
    }
}

/// Checks the guard during the work. The file that ends the worker ends the work too. Returns when
/// the guard was last known to be valid.
fn watch(recorder: Recorder<'_>, guard: &impl Held, time: Duration) -> Result<Option<u64>> {
    let config = recorder.config;
    let begun = Instant::now();
    let mut good = None;
    for glance in 1.. {
        let at = now();
        if guard.loss().is_some() || begun.elapsed() >= time {
            break;
        }
        good = Some(at);
        if glance % RECORD_EVERY == 0 {
            if config.is_stopped() {
                break;
            }
            good = record_validity(recorder, guard)?.or(good);
        }
        sleep(CHECK_INTERVAL);
    }

    Ok(good)
}

/// Records the validity, if it has an end. Returns the current time if the guard is valid.
fn record_validity(recorder: Recorder<'_>, guard: &impl Held) -> Result<Option<u64>> {
    let at = now();
    match guard.remaining() {
        Duration::ZERO => return Ok(None),
        Duration::MAX => {}
        left => recorder.valid_until(at, at.saturating_add(u64::try_from(left.as_nanos())?))?,
    }
    Ok(Some(at))
}

/// Records a release.
pub(super) fn end(
    config: &WorkerConfig,
    recorder: Recorder<'_>,
    released: leasehold::Result<()>,
) -> Result<()> {
    match released {
        Ok(()) => recorder.record(EventKind::Released),
        Err(error) if passes(config, &error) => recorder.record(EventKind::ReleaseUnknown),
        Err(error) => Err(error.into()),
    }
}

/// Whether a worker continues after this error, as faults of servers and of the network cause it.
pub(super) fn passes(config: &WorkerConfig, error: &Error) -> bool {
    let fails = error.is_lost() || error.is_unavailable();
    match config.on_error {
        OnError::Abort => false,
        OnError::Retry => fails,
        OnError::RetryAll => {
            fails || error.is_denied() || error.is_damaged() || error.is_mismatch()
        }
    }
}

impl Held for blocking::Guard {
    fn token(&self) -> Token {
        Self::token(self)
    }

    fn remaining(&self) -> Duration {
        Self::remaining(self)
    }

    fn loss(&self) -> Option<LossReason> {
        Self::loss(self)
    }
}
