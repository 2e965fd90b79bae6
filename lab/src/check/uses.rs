//! What is taken is given back.

use anyhow::{Context, Result, ensure};

use crate::{Event, Uses, What};

/// A connection may just be being made again.
pub(crate) const SPARE: usize = 2;
/// In KiB: what an allocator keeps. A hundred bytes kept of each of a hundred thousand cycles would be more.
const MEMORY_SPARE: usize = 8 * 1024;

/// A process, which tells it soon after its beginning and at its end, uses no more then than before.
///
/// # Errors
/// If it does, or has not told.
pub fn uses(events: &[Event]) -> Result<()> {
    uses_but(events, SPARE)
}

/// As [`uses`], with so many descriptors and tasks to spare, as one that began while servers were away had fewer connections.
///
/// # Errors
/// As there.
pub fn uses_but(events: &[Event], spare: usize) -> Result<()> {
    let told = events.iter().filter_map(|event| if let What::Uses(uses) = event.what { Some(uses) } else { None });
    let told: Vec<Uses> = told.collect();
    let (first, last) = (told.first().context("none told")?, told.last().context("none told")?);
    ensure!(fits(first, last, spare), "not given back: {told:?}");
    Ok(())
}

pub(crate) fn fits(first: &Uses, last: &Uses, spare: usize) -> bool {
    last.descriptors <= first.descriptors + spare
        && last.threads <= first.threads + SPARE
        && last.tasks <= first.tasks + spare
        && last.memory <= first.memory + MEMORY_SPARE
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: Uses = Uses { descriptors: 9, threads: 4, tasks: 2, memory: 8_000 };

    fn told(last: Uses) -> Result<()> {
        uses(&[FEW, last].map(|uses| Event { at: 1, hand: 0, name: 0, what: What::Uses(uses) }))
    }

    #[test]
    fn what_is_given_back_is_sound() {
        told(FEW).unwrap();
        told(Uses { descriptors: 3, ..FEW }).unwrap();
        assert!(uses(&[]).is_err());
    }

    #[test]
    fn what_is_kept_is_caught() {
        let more = [
            Uses { descriptors: 12, ..FEW },
            Uses { threads: 7, ..FEW },
            Uses { tasks: 5, ..FEW },
            Uses { memory: 20_000, ..FEW },
        ];
        assert!(more.into_iter().all(|uses| told(uses).is_err()));
    }
}
