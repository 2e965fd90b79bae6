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
    let differs = arguments.twice && run_plan(&plan, Detail::Brief).digest() != report.digest();

    Outcome {
        grants: report.grants,
        met_hold: report.faults_with_hold > 0,
        differs,
        explain: report
            .violation
            .map(|_| Box::new(move |arguments: &Arguments| explain(&plan, arguments)) as _),
    }
}

/// Prints the smallest history with the violation of a plan.
fn explain(plan: &Plan, arguments: &Arguments) {
    let smallest = if arguments.quiet {
        plan.clone()
    } else {
        minimise(plan)
    };
    let report = run_plan(&smallest, Detail::Full);

    if !arguments.quiet {
        println!("{:#?}", smallest.profile);
        report.events.iter().for_each(|event| println!("{event}"));
    }
    if let Some(violation) = report.violation {
        println!("seed {}: {violation}", plan.seed);
    }
}
