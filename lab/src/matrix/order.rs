//! The order of grants, and the time that waiters wait, in one run.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Cell;
use super::check::{SLACK, unsettled_spans};
use crate::backends::Capability;
use crate::check;
use crate::fault_run::{LONG, Outcome};
use crate::faults::{Disturbed, Guarantee};
use crate::{Event, Hold};

/// In leases: how long others may hold the long lock before a waiter is granted.
const LONG_HOLD_LEASES: u32 = 4;
/// A hand-over that takes longer than this part of a lease was found by polling. A notified waiter
/// needs a few milliseconds, on a busy machine some more.
const NOTIFIED_WITHIN: u32 = 12;

/// Checks, on a store with a queue, that no waiter was overtaken or starved, and that releases
/// reached the next waiter by notifications after the last fault. Returns the median time of that.
///
/// # Errors
/// The first waiter, or the time that hand-overs took, or that the end of the run shows too little.
pub(super) fn check(
    cell: &Cell,
    outcome: &Outcome,
    all: &[Hold],
    observed: &[Event],
) -> Result<Duration> {
    if !cell.backend.has(Capability::FifoQueue) {
        return Ok(Duration::ZERO);
    }

    let disturbed = unsettled_spans(outcome, cell.backend.lease + late_bytes(cell));
    let overtaking = check::overtaking(&outcome.observations, all, &disturbed);
    ensure!(overtaking.is_none(), "overtaken: {overtaking:?}");

    check::waits(&outcome.events, &disturbed, outcome.time.1, |cycle| {
        waits_at_most(cell, cycle.name)
    })?;

    // Where requests are refused, every wait has a limit, and its end removes the claim.
    ensure!(
        cell.guarantee == Guarantee::Refuses
            || observed.iter().any(|event| event.at > outcome.settled),
        "no waiter was observed after the last fault"
    );
    let bound = cell.backend.lease / NOTIFIED_WITHIN;
    let time = check::hand_over_time(all, &[(0, outcome.settled)])
        .context("too few waiters were granted after the last fault")?;
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
