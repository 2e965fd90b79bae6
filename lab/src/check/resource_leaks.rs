//! What is taken is given back.

use anyhow::{Context, Result, ensure};

use crate::{Event, EventKind, ResourceUsage};

/// A connection may just be being made again.
pub(crate) const SPARE: usize = 2;
/// In KiB: what an allocator keeps. A hundred bytes kept of each of a hundred thousand cycles would be more.
const MEMORY_SPARE: usize = 8 * 1024;

/// A process, which tells it soon after its beginning and at its end, uses no more then than before.
///
/// # Errors
/// If it does, or has not told.
pub fn resource_leaks(events: &[Event]) -> Result<()> {
    resource_leaks_beyond(events, SPARE)
}

/// As [`usage`], with so many descriptors and tasks to spare, as one that began while servers were away had fewer connections.
///
/// # Errors
/// As there.
pub fn resource_leaks_beyond(events: &[Event], spare: usize) -> Result<()> {
    let recorded = events.iter().filter_map(|event| {
        if let EventKind::ResourceUsage(usage) = event.kind {
            Some(usage)
        } else {
            None
        }
    });
    let recorded: Vec<ResourceUsage> = recorded.collect();
    let (first, last) = (
        recorded.first().context("none told")?,
        recorded.last().context("none told")?,
    );
    ensure!(fits(first, last, spare), "not given back: {recorded:?}");
    Ok(())
}

pub(crate) fn fits(first: &ResourceUsage, last: &ResourceUsage, spare: usize) -> bool {
    last.descriptors <= first.descriptors + spare
        && last.threads <= first.threads + SPARE
        && last.tasks <= first.tasks + spare
        && last.memory <= first.memory + MEMORY_SPARE
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: ResourceUsage = ResourceUsage {
        descriptors: 9,
        threads: 4,
        tasks: 2,
        memory: 8_000,
    };

    fn recorded(last: ResourceUsage) -> Result<()> {
        resource_leaks(&[FEW, last].map(|usage| Event {
            at: 1,
            thread: 0,
            name: 0,
            kind: EventKind::ResourceUsage(usage),
        }))
    }

    #[test]
    fn returned_resources_pass() {
        recorded(FEW).unwrap();
        recorded(ResourceUsage {
            descriptors: 3,
            ..FEW
        })
        .unwrap();
        assert!(resource_leaks(&[]).is_err());
    }

    #[test]
    fn leaked_resources_are_detected() {
        let more = [
            ResourceUsage {
                descriptors: 12,
                ..FEW
            },
            ResourceUsage { threads: 7, ..FEW },
            ResourceUsage { tasks: 5, ..FEW },
            ResourceUsage {
                memory: 20_000,
                ..FEW
            },
        ];
        assert!(more.into_iter().all(|usage| recorded(usage).is_err()));
    }
}
