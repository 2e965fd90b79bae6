//! Runs histories, and prints the timeline of the first one with a violation.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use lab_simulation::{Detail, Plan, minimise, run};
use parking_lot::Mutex;

/// Runs histories of the engine in virtual time.
#[derive(Parser)]
struct Arguments {
    /// How many histories to run
    #[arg(
        long,
        default_value_t = 100_000,
        default_value_if("scripts", "true", "1000")
    )]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many threads run histories
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// Run the stores on Redis, with their scripts, in place of the engine alone
    #[arg(long)]
    scripts: bool,
    /// Run jobs once, six in each history
    #[arg(long, conflicts_with = "scripts")]
    once: bool,
}

/// What one history did.
struct Outcome {
    grants: u32,
    /// Whether a fault began while a client held.
    met_hold: bool,
    /// Prints the violation, if there was one.
    explain: Option<Explain>,
}

type Explain = Box<dyn FnOnce() + Send>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let totals = Totals::default();
    let started = Instant::now();

    std::thread::scope(|scope| {
        for job in 0..arguments.jobs {
            let arguments = &arguments;
            let totals = &totals;
            scope.spawn(move || run_job(arguments, totals, job));
        }
    });

    totals.print(started);
    let Some((seed, explain)) = totals.failed.into_inner() else {
        return ExitCode::SUCCESS;
    };
    explain();
    let kind = match (arguments.scripts, arguments.once) {
        (true, _) => "--scripts ",
        (_, true) => "--once ",
        _ => "",
    };
    println!("repeat with: cargo xtask simulate {kind}--from {seed} --seeds 1");
    ExitCode::FAILURE
}

/// What all jobs did.
#[derive(Default)]
struct Totals {
    histories: AtomicU64,
    grants: AtomicU64,
    met_hold: AtomicU64,
    short: AtomicU64,
    /// The failed history with the smallest seed.
    failed: Mutex<Option<(u64, Explain)>>,
}

impl Totals {
    fn add(&self, outcome: &Outcome) {
        let grants = u64::from(outcome.grants);
        self.histories.fetch_add(1, Ordering::Relaxed);
        self.grants.fetch_add(grants, Ordering::Relaxed);
        self.met_hold
            .fetch_add(u64::from(outcome.met_hold), Ordering::Relaxed);
        self.short
            .fetch_add(u64::from(grants < 10), Ordering::Relaxed);
    }

    fn print(&self, started: Instant) {
        let histories = self.histories.load(Ordering::Relaxed);
        let seconds = started.elapsed().as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = histories as f64 / seconds;
        println!(
            "{histories} histories in {seconds:.1} s, {rate:.0} a second; {} grants; \
             {} histories with a fault during a hold; {} with fewer than ten grants",
            self.grants.load(Ordering::Relaxed),
            self.met_hold.load(Ordering::Relaxed),
            self.short.load(Ordering::Relaxed),
        );
    }
}

fn run_job(arguments: &Arguments, totals: &Totals, job: u64) {
    let seeds = arguments.from..arguments.from + arguments.seeds;
    for seed in seeds.filter(|seed| seed % arguments.jobs == job) {
        if totals.failed.lock().is_some() {
            return;
        }
        let outcome = run_history(seed, arguments);
        totals.add(&outcome);

        if let Some(explain) = outcome.explain {
            let mut failed = totals.failed.lock();
            if failed.as_ref().is_none_or(|(earlier, _)| seed < *earlier) {
                *failed = Some((seed, explain));
            }
        }
    }
}

/// Runs the history of a seed.
fn run_history(seed: u64, arguments: &Arguments) -> Outcome {
    let plan = match (arguments.scripts, arguments.once) {
        (true, _) => Plan::draw_scripts(seed),
        (_, true) => Plan::draw_jobs(seed),
        _ => Plan::draw(seed),
    };
    let report = run(&plan, Detail::Brief);

    Outcome {
        grants: report.counts.grants,
        met_hold: report.counts.faults_with_hold + report.counts.breaks_with_hold > 0,
        explain: report
            .violation
            .map(|_| Box::new(move || explain(&plan)) as _),
    }
}

/// Prints the smallest history with the violation of a plan.
fn explain(plan: &Plan) {
    let smallest = minimise(plan);
    let report = run(&smallest, Detail::Full);

    println!("{:#?}", smallest.profile);
    report.events.iter().for_each(|event| println!("{event}"));
    if let Some(violation) = report.violation {
        println!("seed {}: {violation}", plan.seed);
    }
}
