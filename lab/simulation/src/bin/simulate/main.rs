//! Runs histories, and prints the timeline of the first one with a violation.

mod scripts;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use lab_simulation::{Detail, Plan, Report, minimise, run};
use parking_lot::Mutex;

/// Runs histories of the engine in virtual time.
#[derive(Parser)]
struct Arguments {
    /// How many histories to run
    #[arg(long, default_value_t = 100_000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many threads run histories
    #[arg(long, default_value_t = 1)]
    jobs: u64,
    /// Print the first violation only, without the timeline
    #[arg(long)]
    quiet: bool,
    /// Run the stores on Redis, with their scripts, in place of the engine alone
    #[arg(long)]
    scripts: bool,
    /// Run each history twice and compare the runs
    #[arg(long)]
    twice: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.scripts {
        return scripts::run(&arguments);
    }
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
    let failed = totals.failed.lock().take();
    let Some(seed) = failed else {
        return ExitCode::SUCCESS;
    };
    explain(seed, &arguments);
    ExitCode::FAILURE
}

/// What all jobs did.
#[derive(Default)]
struct Totals {
    histories: AtomicU64,
    grants: AtomicU64,
    fault_met: AtomicU64,
    short: AtomicU64,
    stop: AtomicBool,
    failed: Mutex<Option<u64>>,
}

impl Totals {
    fn add(&self, report: &Report) {
        self.histories.fetch_add(1, Ordering::Relaxed);
        self.grants
            .fetch_add(u64::from(report.grants), Ordering::Relaxed);
        if report.faults_with_hold > 0 {
            self.fault_met.fetch_add(1, Ordering::Relaxed);
        }
        if report.grants < 10 {
            self.short.fetch_add(1, Ordering::Relaxed);
        }
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
            self.fault_met.load(Ordering::Relaxed),
            self.short.load(Ordering::Relaxed),
        );
    }
}

fn run_job(arguments: &Arguments, totals: &Totals, job: u64) {
    let seeds = arguments.from..arguments.from + arguments.seeds;
    for seed in seeds.filter(|seed| seed % arguments.jobs == job) {
        if totals.stop.load(Ordering::Relaxed) {
            return;
        }
        let plan = Plan::draw(seed);
        let report = run(&plan, Detail::Brief);
        totals.add(&report);

        let differs = arguments.twice && run(&plan, Detail::Brief).digest() != report.digest();
        if differs {
            println!("seed {seed} does not replay exactly");
        }
        if differs || report.violation.is_some() {
            totals.stop.store(true, Ordering::Relaxed);
            let mut failed = totals.failed.lock();
            *failed = Some(failed.map_or(seed, |earlier| earlier.min(seed)));
        }
    }
}

/// Prints the smallest history with the violation of a seed.
fn explain(seed: u64, arguments: &Arguments) {
    let plan = Plan::draw(seed);
    let plan = if arguments.quiet {
        plan
    } else {
        minimise(&plan)
    };
    let report = run(&plan, Detail::Full);

    if !arguments.quiet {
        println!("{:#?}", plan.profile);
        for event in &report.events {
            println!("{event}");
        }
    }
    if let Some(violation) = &report.violation {
        println!("seed {seed}: {violation}");
    }
    println!("repeat with: cargo xtask simulate --from {seed} --seeds 1");
}
