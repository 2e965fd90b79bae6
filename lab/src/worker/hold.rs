//! A hold, from its grant to its end.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use leasehold::{Error, LossReason, ReentrantGuard, Token, blocking};

use super::recorder::Recorder;
use super::work;
use crate::{HoldWork, OnError, WorkerConfig, now};

/// How often a watched hold is looked at, and how often that is told.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);
const RECORD_EVERY: u32 = 20;

/// A guard of either face.
pub(super) trait Held {
    fn token(&self) -> Token;
    fn remaining(&self) -> Duration;
    fn loss(&self) -> Option<LossReason>;

    /// Takes again what it is, if it can be.
    fn nest(&self, _: Recorder<'_>) -> Result<Vec<ReentrantGuard>> {
        Ok(Vec::new())
    }

    /// Gives back what was taken again, but so many.
    fn unnest(&self, _: Recorder<'_>, _: &mut Vec<ReentrantGuard>, _kept: usize) -> Result<()> {
        Ok(())
    }
}

/// Tells of a grant, does what is ordered, and tells whether the hold outlasted it.
pub(super) fn hold(config: &WorkerConfig, recorder: Recorder<'_>, guard: &impl Held) -> Result<()> {
    // It may be over by the time it is told; then it was good at no time that is known.
    let granted = recorder.granted(guard.token())?;
    let good = record_validity(recorder, guard)?.unwrap_or(granted);
    // Some of it is given back before the work, which the rest must protect, and some after it.
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
        None => recorder.releasing(at),
        Some(loss) => {
            recorder.lost(good, loss)?;
            // What is lost stays lost; if it did not, this would tell, and no history has room for it.
            record_validity(recorder, guard).map(drop)
        }
    }
}

/// When it was last known to be good, if ever.
fn watch(recorder: Recorder<'_>, guard: &impl Held, time: Duration) -> Result<Option<u64>> {
    let (begun, mut good) = (Instant::now(), None);
    for glance in 1.. {
        let at = now();
        if guard.loss().is_some() || begun.elapsed() >= time {
            break;
        }
        good = Some(at);
        if glance % RECORD_EVERY == 0 {
            good = record_validity(recorder, guard)?.or(good);
        }
        sleep(CHECK_INTERVAL);
    }
    Ok(good)
}

/// Tells until when it is good, unless only a crash ends it; when that was, if it was good.
fn record_validity(recorder: Recorder<'_>, guard: &impl Held) -> Result<Option<u64>> {
    let at = now();
    match guard.remaining() {
        Duration::ZERO => return Ok(None),
        Duration::MAX => {}
        left => recorder.valid_until(at, at.saturating_add(u64::try_from(left.as_nanos())?))?,
    }
    Ok(Some(at))
}

/// Tells of a release.
pub(super) fn end(
    config: &WorkerConfig,
    recorder: Recorder<'_>,
    released: leasehold::Result<()>,
) -> Result<()> {
    match released {
        Ok(()) => recorder.released(),
        Err(error) if passes(config, &error) => recorder.release_unknown(),
        Err(error) => Err(error.into()),
    }
}

/// What faults of servers and wires do to those who ask.
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

impl Held for leasehold::Guard {
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
