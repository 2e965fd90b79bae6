//! Histories of the engine alone.

use lab_simulation::{Detail, Plan, minimise, run as run_plan};

use crate::{Arguments, Outcome};

/// Runs the history of a seed.
pub(crate) fn run(seed: u64, arguments: &Arguments) -> Outcome {
    let plan = if arguments.once {
        Plan::draw_jobs(seed)
    } else {
        Plan::draw(seed)
    };
    let report = run_plan(&plan, Detail::Brief);

    Outcome {
        grants: report.grants,
        met_hold: report.faults_with_hold > 0,
        explain: report
            .violation
            .map(|_| Box::new(move || explain(&plan)) as _),
    }
}

/// Prints the smallest history with the violation of a plan.
fn explain(plan: &Plan) {
    let smallest = minimise(plan);
    let report = run_plan(&smallest, Detail::Full);

    println!("{:#?}", smallest.profile);
    report.events.iter().for_each(|event| println!("{event}"));
    if let Some(violation) = report.violation {
        println!("seed {}: {violation}", plan.seed);
    }
}
