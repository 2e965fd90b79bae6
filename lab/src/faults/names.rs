//! Faults with names that have a meaning elsewhere.

use anyhow::{Result, ensure};

use super::{network, processes};
use crate::backends::Capability;
use crate::fault_run::{Effect, FaultRun};
use crate::worker_config::COHORT_LABEL;
use crate::{Random, hostile_names, until};

/// The names are hostile during the whole run. The second fault makes the store use them in every
/// way.
pub(super) fn hostile_names(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let effect = if run.cell.backend.has(Capability::Network) {
        network::reset(run, random)?
    } else {
        processes::killed(run, random, processes::holds)?
    };

    let testbed = &run.testbed;
    for name in hostile_names::no_names() {
        let refused = testbed
            .run(testbed.locks().mutex(&name).acquire())
            .map(drop);
        ensure!(
            refused.is_err_and(|error| error.is_invalid()),
            "a name of {} bytes is accepted",
            name.len()
        );
    }
    // All entries belong to workers. Their labels are numbers, or `cohort`, or empty while they
    // nest.
    for name in &run.config.names {
        // The inspecting client may have lost its connections too.
        for entry in until("the queue to be inspected", || {
            Ok(testbed.inspect(name).ok())
        })?
        .entries
        {
            let label = &entry.info.label;
            let is_of_thread = label.parse::<u32>().is_ok();
            ensure!(
                label.is_empty() || label == COHORT_LABEL || is_of_thread,
                "the entry of another client is in the queue of {name:?}: {entry:?}"
            );
        }
    }
    Ok(effect.map(|effect| Effect {
        evidence: format!("{} of {:?}", effect.evidence, run.config.names),
        ..effect
    }))
}
