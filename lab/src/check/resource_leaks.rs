//! A process returns the resources that it takes.

use anyhow::{Context, Result, ensure};

use crate::worker::WARM;
use crate::{Event, EventKind, ResourceUsage};

/// How much more a process may use at its end than when it was warm.
pub(crate) const SLACK: ResourceUsage = ResourceUsage {
    // A connection may just be opening.
    descriptors: 2,
    threads: 2,
    tasks: 2,
    // A leak of a hundred bytes in each of ten thousand cycles exceeds it.
    memory: 1024,
};

/// Checks that a process uses no more at its end than when it was warm.
///
/// # Errors
/// If the process uses more, or did not record its usage both times. One that has ended before it was
/// warm records it once.
///
/// Shows L5.
pub fn resource_leaks(events: &[Event]) -> Result<()> {
    resource_leaks_beyond(events, &SLACK)
}

/// As [`resource_leaks`], with another slack, because faults were injected.
///
/// # Errors
/// As [`resource_leaks`].
pub(crate) fn resource_leaks_beyond(events: &[Event], slack: &ResourceUsage) -> Result<()> {
    let recorded = events.iter().filter_map(|event| {
        if let EventKind::ResourceUsage(usage) = event.kind {
            Some((event.thread, usage))
        } else {
            None
        }
    });
    let (threads, recorded): (Vec<u32>, Vec<ResourceUsage>) = recorded.unzip();
    let thread = threads.first().context("no usage was recorded")?;
    let is_cycle = |event: &&Event| event.thread == *thread && event.kind == EventKind::Requested;
    let cycles = events.iter().filter(is_cycle).count() as u64;
    let [first, .., last] = &recorded[..] else {
        ensure!(cycles <= WARM, "the usage of the warm process is missing");
        return Ok(());
    };
    ensure!(
        fits(first, last, slack),
        "resources were not returned: {recorded:?}"
    );

    Ok(())
}

pub(crate) fn fits(first: &ResourceUsage, last: &ResourceUsage, slack: &ResourceUsage) -> bool {
    last.descriptors <= first.descriptors + slack.descriptors
        && last.threads <= first.threads + slack.threads
        && last.tasks <= first.tasks + slack.tasks
        && last.memory <= first.memory + slack.memory
}
