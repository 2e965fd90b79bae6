//! Histories of the stores on Redis.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use lab_simulation::scripts::{ScriptPlan, ScriptReport, run_scripts};
use parking_lot::Mutex;

use crate::Arguments;

/// What all jobs did.
#[derive(Default)]
struct ScriptTotals {
    histories: AtomicU64,
    grants: AtomicU64,
    broke: AtomicU64,
    /// The first history with a violation. A second run of its seed may have none.
    failed: Mutex<Option<(ScriptPlan, ScriptReport)>>,
}

/// Runs the histories, and prints the first one with a violation.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let totals = ScriptTotals::default();
    let started = Instant::now();
    std::thread::scope(|scope| {
        for job in 0..arguments.jobs {
            let totals = &totals;
            scope.spawn(move || run_job(arguments, totals, job));
        }
    });

    totals.print(started);
    let failed = totals.failed.lock().take();
    let Some((plan, report)) = failed else {
        return ExitCode::SUCCESS;
    };
    explain(&plan, &report);
    ExitCode::FAILURE
}

fn run_job(arguments: &Arguments, totals: &ScriptTotals, job: u64) {
    let seeds = arguments.from..arguments.from + arguments.seeds;
    for seed in seeds.filter(|seed| seed % arguments.jobs == job) {
        if totals.failed.lock().is_some() {
            return;
        }
        let plan = ScriptPlan::draw(seed);
        let report = run_scripts(&plan);
        totals.histories.fetch_add(1, Ordering::Relaxed);
        totals
            .grants
            .fetch_add(u64::from(report.grants), Ordering::Relaxed);
        if report.breaks_with_hold > 0 {
            totals.broke.fetch_add(1, Ordering::Relaxed);
        }

        let differs = arguments.twice && run_scripts(&plan).events != report.events;
        if differs {
            println!("seed {seed} does not replay exactly");
        }
        if differs || report.violation.is_some() {
            totals.failed.lock().get_or_insert((plan, report));
        }
    }
}

impl ScriptTotals {
    fn print(&self, started: Instant) {
        let histories = self.histories.load(Ordering::Relaxed);
        let seconds = started.elapsed().as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = histories as f64 / seconds;
        println!(
            "{histories} histories with scripts in {seconds:.1} s, {rate:.0} a second; {} grants; \
             {} histories with a connection that broke during a hold",
            self.grants.load(Ordering::Relaxed),
            self.broke.load(Ordering::Relaxed),
        );
    }
}

fn explain(plan: &ScriptPlan, report: &ScriptReport) {
    println!("{plan}");
    report.events.iter().for_each(|event| println!("{event}"));

    let seed = plan.seed;
    println!("repeat with: cargo xtask simulate --scripts --from {seed} --seeds 1");
}
