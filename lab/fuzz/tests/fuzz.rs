//! Kept and random inputs for every target. `cargo xtask fuzz` runs more of them.
//!
//! `FUZZ_SECONDS` is the time of each target, and `FUZZ_SEED` the first seed.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lab_fuzz::{Budget, TARGETS, run};
use libtest_mimic::{Arguments, Trial};

/// The time of each target in a test run, beside its kept inputs.
const TIME: Duration = Duration::from_millis(900);

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // The memory of an input is that of the process.
    arguments.test_threads = Some(1);
    let budget = budget();

    let trials = TARGETS.iter().map(|target| {
        Trial::test(target.name, move || {
            let inputs = run(target, budget).map_err(|error| format!("{error:#}"))?;
            println!("{}: {inputs} inputs from seed {}", target.name, budget.seed);
            Ok(())
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn budget() -> Budget {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let clock = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();

    Budget {
        seed: number("FUZZ_SEED").unwrap_or(clock.as_secs() << 20),
        time: number("FUZZ_SECONDS").map_or(TIME, Duration::from_secs),
    }
}
