//! Histories of the stores on Redis.

use lab_simulation::scripts::{ScriptPlan, run_scripts};

use crate::{Arguments, Outcome};

/// Runs the history of a seed.
pub(crate) fn run(seed: u64, arguments: &Arguments) -> Outcome {
    let plan = ScriptPlan::draw(seed);
    let report = run_scripts(&plan);
    let differs = arguments.twice && run_scripts(&plan).events != report.events;

    let explain = move |_: &Arguments| {
        println!("{plan:?}");
        report.events.iter().for_each(|event| println!("{event}"));
    };
    Outcome {
        grants: report.grants,
        met_hold: report.breaks_with_hold > 0,
        differs,
        explain: report.violation.is_some().then(|| Box::new(explain) as _),
    }
}
