//! The order of grants, and the time that waiters wait, in one run.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::Cell;
use super::check::{SLACK, disturbed_spans};
use crate::Hold;
use crate::backends::Capability;
use crate::check::{self, extended};
use crate::fault_run::{LONG, Outcome};
use crate::faults::Disturbed;

/// In leases: how long others may hold the long lock before a waiter is granted.
const LONG_HOLD_LEASES: u32 = 4;
/// A hand-over that takes longer than this part of a lease was found by polling. A notified waiter
/// needs a few milliseconds, on a busy machine some more.
const NOTIFIED_WITHIN: u32 = 8;

/// Checks, on a store with a queue, that no waiter was overtaken or starved, and that releases
/// reached the next waiter by notifications. Returns the median time of that.
///
/// # Errors
/// The first waiter, or the time that hand-overs took.
pub(super) fn check(cell: &Cell, outcome: &Outcome, all: &[Hold]) -> Result<Duration> {
    if !cell.backend.has(Capability::FifoQueue) {
        return Ok(Duration::ZERO);
    }

    let spans = disturbed_spans(outcome);
    let disturbed = extended(&spans, cell.backend.lease + late_bytes(cell));
    let overtaking = check::overtaking(&outcome.observations, all, &disturbed);
    ensure!(overtaking.is_none(), "overtaken: {overtaking:?}");

    check::waits(&outcome.events, &disturbed, outcome.time.1, |cycle| {
        waits_at_most(cell, cycle.name)
    })?;

    let bound = cell.backend.lease / NOTIFIED_WITHIN;
    let time = check::hand_over_time(all, &extended(&spans, late_bytes(cell))).unwrap_or_default();
    ensure!(
        time <= bound,
        "half of the releases reached the next waiter after {time:?} or later"
    );
    Ok(time)
}

/// How long a waiter may wait outside of faults. A fault may cost waiters their positions; then
/// they wait as long as a lock may take to be granted again.
fn waits_at_most(cell: &Cell, name: u16) -> Duration {
    let held = if name == LONG {
        cell.backend.lease * LONG_HOLD_LEASES
    } else {
        Duration::ZERO
    };
    cell.bound + SLACK + held
}

/// How long a wire delivers late bytes after the end of a fault: up to three seconds.
fn late_bytes(cell: &Cell) -> Duration {
    if cell.fault.disturbs == Disturbed::Wires {
        SLACK
    } else {
        Duration::ZERO
    }
}
