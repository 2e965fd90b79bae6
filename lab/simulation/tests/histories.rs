//! Histories of the engine in virtual time. `cargo xtask simulate` runs more of them.

#[path = "histories/directed.rs"]
mod directed;
#[path = "histories/scripts.rs"]
mod scripts;
#[path = "histories/servers.rs"]
mod servers;

use lab_simulation::{Detail, Plan, minimise, run};

/// The histories of a test run. `cargo xtask test` runs more, in a release build.
const SEEDS: std::ops::Range<u64> = 0..400;
/// The histories with jobs.
const JOB_SEEDS: u64 = 80;

#[test]
fn histories_keep_all_invariants() {
    let mut met_hold = 0;
    let mut passes = 0;
    for seed in SEEDS {
        let report = run(&Plan::draw(seed), Detail::Brief);
        met_hold += u32::from(report.counts.faults_with_hold > 0);
        passes += report.counts.passes;

        if let Some(violation) = report.violation {
            panic!("{violation}; repeat with: cargo xtask simulate --from {seed} --seeds 1");
        }
    }
    assert!(
        met_hold >= 200,
        "only {met_hold} histories had a fault during a hold"
    );
    assert!(passes >= 200, "only {passes} holds were passed on");
}

/// Each history has six jobs, and ids are tried after their successors.
///
/// Shows G-58.
#[test]
fn jobs_run_once_and_are_completed_in_the_end() {
    let mut met_hold = 0;
    for seed in 0..JOB_SEEDS {
        let report = run(&Plan::draw_jobs(seed), Detail::Brief);
        met_hold += u32::from(report.counts.faults_with_hold > 0);
        if let Some(violation) = report.violation {
            panic!("{violation}; repeat with: cargo xtask simulate --once --from {seed} --seeds 1");
        }
    }
    assert!(
        met_hold >= 25,
        "only {met_hold} histories had a fault during a hold"
    );
}

#[test]
fn seed_replays_exactly() {
    let plans = (0..40).map(Plan::draw);
    for plan in plans.chain((0..8).map(Plan::draw_scripts)) {
        let first = run(&plan, Detail::Full).digest();

        assert_eq!(first, run(&plan, Detail::Full).digest(), "{plan:?}");
    }
}

/// The engine allows for clocks that differ by 500 millionths. The check must find more.
#[test]
fn clock_beyond_the_margin_violates_an_invariant_and_is_minimised() {
    let with_slow_clocks = |seed| {
        let mut plan = Plan::draw(seed);
        plan.clients
            .iter_mut()
            .for_each(|client| client.drift = -20_000);
        plan
    };
    let violates = |plan: &Plan| run(plan, Detail::Brief).violation;
    let mut plans = SEEDS.map(with_slow_clocks);
    let plan = plans
        .find(|plan| violates(plan).is_some())
        .expect("a slow clock trusts a lease for too long");

    let smallest = minimise(&plan);
    assert!(smallest.operations() < plan.operations());
    assert_eq!(
        violates(&smallest).map(|violation| violation.rule),
        violates(&plan).map(|violation| violation.rule),
    );
}
