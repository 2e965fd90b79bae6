//! Faults where locks have names that mean something elsewhere.

use anyhow::{Result, ensure};

use super::{processes, wires};
use crate::ground::Store;
use crate::storm::{Storm, Struck};
use crate::{Random, hostile, until};

/// The names are hostile all the time; what else happens makes the store go all its ways with them.
pub(super) fn hostile(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let struck = match storm.ground.store {
        Store::File => processes::holder_killed(storm, random)?,
        _ => wires::reset(storm, random)?,
    };
    let site = &storm.ground;
    for name in hostile::no_names() {
        let refused = site.run(site.locks().mutex(&name).acquire()).map(drop);
        ensure!(refused.is_err_and(|error| error.is_invalid()), "a name of {} bytes is none", name.len());
    }
    // What is seen there was entered by the crew, whose labels are numbers, or none while they nest.
    for name in &storm.terms.names {
        // Who looks on may have lost its connections too.
        for entry in until("the line to be seen", || Ok(site.look(name).ok()))?.entries {
            let label = &entry.note.label;
            ensure!(label.is_empty() || label.parse::<u32>().is_ok(), "{name:?}: {entry:?}");
        }
    }
    Ok(struck.map(|struck| Struck { seen: format!("{} of {:?}", struck.seen, storm.terms.names), ..struck }))
}
