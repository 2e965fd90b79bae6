//! Histories of the stores on Redis. `cargo xtask simulate --scripts` runs more of them.

use lab_simulation::scripts::{ScriptPlan, run_scripts};

/// The histories of a test run. Two of them have readers with unlike leases.
const SEEDS: u64 = 8;

#[test]
fn script_histories_keep_exclusion_and_tokens() {
    let count = std::env::var("SCRIPT_SEEDS").map_or(Ok(SEEDS), |count| count.parse());
    let first = std::env::var("SCRIPT_FROM")
        .map_or(Ok(0), |first| first.parse::<u64>())
        .expect("a number");
    let [
        mut broke,
        mut shared,
        mut unlike,
        mut downgraded,
        mut faults,
        mut client_faults,
    ] = [0; 6];
    for seed in first..first + count.expect("a number") {
        let plan = ScriptPlan::draw(seed);
        let report = run_scripts(&plan);
        broke += report.breaks_with_hold;
        shared += report.shared_grants;
        unlike += report.unlike_leases;
        downgraded += report.downgrades;
        faults += report.server_faults;
        client_faults += report.client_faults;

        if let Some(violation) = report.violation {
            report.events.iter().for_each(|event| println!("{event}"));
            panic!(
                "{plan:?}: {violation}; repeat with: cargo xtask simulate --scripts --from {seed} \
                 --seeds 1"
            );
        }
    }
    assert!(broke > 0, "no connection broke while a client held");
    assert!(shared > 0, "no reader was granted beside another guard");
    assert!(unlike > 0, "no reader had a lease unlike the other guard's");
    assert!(downgraded > 0, "no guard was downgraded");
    assert!(faults > 0, "no server failed");
    assert!(
        client_faults > 0,
        "no client was paused or killed while it held"
    );
}

/// Shows G-58.
#[test]
fn jobs_are_completed_once_by_a_claim_that_held() {
    let mut jobs = [0; 2];
    for seed in 0..4 * SEEDS {
        let plan = ScriptPlan::draw(seed).with_jobs();
        let report = run_scripts(&plan);
        if let Some(violation) = report.violation {
            report.events.iter().for_each(|event| println!("{event}"));
            panic!("{plan:?}: {violation}");
        }
        jobs = [0, 1].map(|at| jobs[at] + report.jobs[at]);
    }
    assert!(jobs.iter().all(|count| *count > 20), "{jobs:?}");
}

#[test]
fn seed_of_scripts_replays_exactly() {
    for seed in 0..SEEDS {
        let plan = ScriptPlan::draw(seed);
        let first = run_scripts(&plan).events;
        let again = run_scripts(&plan).events;

        let mut steps = first.iter().zip(&again);
        assert_eq!(steps.find(|(one, other)| one != other), None, "seed {seed}");
        assert_eq!(first.len(), again.len(), "seed {seed}");
    }
}

/// The clients allow for clocks that differ by 500 millionths. The check must find more.
#[test]
fn clock_beyond_the_margin_lets_two_clients_hold() {
    let mut plans = (0..60).map(|seed| {
        let mut plan = ScriptPlan::draw(seed);
        plan.drifts = vec![-20_000; plan.clients];
        plan
    });
    let violates = |plan: &ScriptPlan| {
        let violation = run_scripts(plan).violation;
        violation.is_some_and(|violation| violation.contains("two clients hold"))
    };
    assert!(plans.any(|plan| violates(&plan)));
}
