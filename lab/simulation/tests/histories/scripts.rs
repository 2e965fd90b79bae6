//! Histories of the stores on Redis. `cargo xtask simulate --scripts` runs more of them.

use lab_simulation::{Detail, Plan, run};

/// The histories of a test run.
const SEEDS: u64 = 16;

#[test]
fn script_histories_keep_exclusion_and_tokens() {
    let count = std::env::var("SCRIPT_SEEDS").map_or(Ok(SEEDS), |count| count.parse());
    let first = std::env::var("SCRIPT_FROM")
        .map_or(Ok(0), |first| first.parse::<u64>())
        .expect("a number");
    let [mut broke, mut shared, mut unlike] = [0; 3];
    let [mut downgraded, mut server_faults, mut client_faults] = [0; 3];
    for seed in first..first + count.expect("a number") {
        let report = run(&Plan::draw_scripts(seed), Detail::Brief);
        broke += report.counts.breaks_with_hold;
        shared += report.counts.shared_grants;
        unlike += report.counts.unlike_leases;
        downgraded += report.counts.downgrades;
        server_faults += report.counts.server_faults;
        client_faults += report.counts.faults_with_hold;

        if let Some(violation) = report.violation {
            panic!(
                "{violation}; repeat with: cargo xtask simulate --scripts --from {seed} --seeds 1"
            );
        }
    }
    assert!(broke > 0, "no connection broke while a client held");
    assert!(shared > 0, "no reader was granted beside another guard");
    assert!(unlike > 0, "no reader had a lease unlike the other guard's");
    assert!(downgraded > 0, "no guard was downgraded");
    assert!(server_faults > 0, "no server failed");
    assert!(client_faults > 0, "no fault met a client that held");
}

/// Shows G-58.
#[test]
fn jobs_are_completed_once_by_a_claim_that_held() {
    let [mut completed, mut found_done] = [0; 2];
    for seed in 0..2 * SEEDS {
        let plan = Plan::draw_script_jobs(seed);
        let report = run(&plan, Detail::Brief);
        if let Some(violation) = report.violation {
            report.events.iter().for_each(|event| println!("{event}"));
            panic!("{plan:?}: {violation}");
        }
        completed += report.counts.jobs_completed;
        found_done += report.counts.jobs_found_done;
    }
    assert!(completed > 20, "{completed}");
    assert!(found_done > 20, "{found_done}");
}

/// The clients allow for clocks that differ by 500 millionths. The check must find more.
#[test]
fn clock_beyond_the_margin_lets_two_clients_hold() {
    let mut plans = (0..200).map(|seed| {
        let mut plan = Plan::draw_scripts(seed);
        let clients = plan.clients.iter_mut();
        clients.for_each(|client| client.drift = -20_000);
        plan
    });
    let violates = |plan: &Plan| {
        let violation = run(plan, Detail::Brief).violation;
        violation.is_some_and(|violation| violation.rule == "holders exclude each other")
    };
    assert!(plans.any(|plan| violates(&plan)));
}
