//! Histories of the stores on Redis.

use lab_simulation::scripts::{ScriptPlan, run_scripts};

use crate::Outcome;

/// Runs the history of a seed.
pub(crate) fn run(seed: u64) -> Outcome {
    let plan = ScriptPlan::draw(seed);
    let report = run_scripts(&plan);

    Outcome {
        grants: report.grants,
        met_hold: report.breaks_with_hold > 0,
        explain: report.violation.is_some().then(move || {
            Box::new(move || {
                println!("{plan:?}");
                report.events.iter().for_each(|event| println!("{event}"));
            }) as _
        }),
    }
}
