//! A hold, from its grant to its end.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use leasehold::{Error, Loss, ReentrantGuard, Token, blocking};

use super::tell::Teller;
use super::work;
use crate::{Orders, Trouble, Work, now};

/// How often a watched hold is looked at, and how often that is told.
const GLANCE: Duration = Duration::from_millis(1);
const TOLD_EVERY: u32 = 20;

/// A guard of either face.
pub(super) trait Held {
    fn token(&self) -> Token;
    fn remaining(&self) -> Duration;
    fn loss(&self) -> Option<Loss>;

    /// Takes again what it is, if it can be.
    fn nest(&self, _: Teller<'_>) -> Result<Vec<ReentrantGuard>> {
        Ok(Vec::new())
    }

    /// Gives back what was taken again, but so many.
    fn unnest(&self, _: Teller<'_>, _: &mut Vec<ReentrantGuard>, _kept: usize) -> Result<()> {
        Ok(())
    }
}

/// Tells of a grant, does what is ordered, and tells whether the hold outlasted it.
pub(super) fn hold(orders: &Orders, teller: Teller<'_>, guard: &impl Held) -> Result<()> {
    // It may be over by the time it is told; then it was good at no time that is known.
    let granted = teller.granted(guard.token())?;
    let good = tell_trust(teller, guard)?.unwrap_or(granted);
    // Some of it is given back before the work, which the rest must protect, and some after it.
    let mut inner = guard.nest(teller)?;
    let half = inner.len() / 2;
    guard.unnest(teller, &mut inner, half)?;
    let good = match orders.work {
        Work::Watched(micros) => watch(teller, guard, Duration::from_micros(micros))?.unwrap_or(good),
        _ => work(orders).map(|()| good)?,
    };
    guard.unnest(teller, &mut inner, 0)?;
    let at = now();
    match guard.loss() {
        None => teller.releasing(at),
        Some(loss) => {
            teller.lost(good, loss)?;
            // What is lost stays lost; if it did not, this would tell, and no history has room for it.
            tell_trust(teller, guard).map(drop)
        }
    }
}

/// When it was last known to be good, if ever.
fn watch(teller: Teller<'_>, guard: &impl Held, time: Duration) -> Result<Option<u64>> {
    let (begun, mut good) = (Instant::now(), None);
    for glance in 1.. {
        let at = now();
        if guard.loss().is_some() || begun.elapsed() >= time {
            break;
        }
        good = Some(at);
        if glance % TOLD_EVERY == 0 {
            good = tell_trust(teller, guard)?.or(good);
        }
        sleep(GLANCE);
    }
    Ok(good)
}

/// Tells until when it is good, unless only a crash ends it; when that was, if it was good.
fn tell_trust(teller: Teller<'_>, guard: &impl Held) -> Result<Option<u64>> {
    let at = now();
    match guard.remaining() {
        Duration::ZERO => return Ok(None),
        Duration::MAX => {}
        left => teller.trusted(at, at.saturating_add(u64::try_from(left.as_nanos())?))?,
    }
    Ok(Some(at))
}

/// Tells of a release.
pub(super) fn end(orders: &Orders, teller: Teller<'_>, released: leasehold::Result<()>) -> Result<()> {
    match released {
        Ok(()) => teller.released(),
        Err(error) if passes(orders, &error) => teller.unsure(),
        Err(error) => Err(error.into()),
    }
}

/// What faults of servers and wires do to those who ask.
pub(super) fn passes(orders: &Orders, error: &Error) -> bool {
    let fails = error.is_lost() || error.is_unavailable();
    match orders.trouble {
        Trouble::Ends => false,
        Trouble::Endured => fails,
        Trouble::Suffered => fails || error.is_denied() || error.is_damaged() || error.is_mismatch(),
    }
}

impl Held for leasehold::Guard {
    fn token(&self) -> Token {
        Self::token(self)
    }

    fn remaining(&self) -> Duration {
        Self::remaining(self)
    }

    fn loss(&self) -> Option<Loss> {
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

    fn loss(&self) -> Option<Loss> {
        Self::loss(self)
    }
}
