//! The chores of this repository: `cargo xtask test`, `cargo xtask soak`, `cargo xtask four-conditions`, `cargo xtask bench`,
//! `cargo xtask needs`.

mod chores;
mod needs;
mod peers;
mod step;
mod wheels;

use std::env;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask CHORE
  needs    fetches and installs what the others need; they do so by themselves
  test     everything that must pass before a change goes in; what CI runs
  soak     a million acquire/release cycles over eight processes, in peace and under each fault, in release mode
  four-conditions
           locks as articles write them and ours, under the same faults; writes docs/four-conditions.md (about six minutes);
           those named alone: the others' figures are the last that were measured
  bench    the benchmarks, or those named, each beside its raw limit; figures go to target/bench";

fn main() -> ExitCode {
    let chore = env::args().nth(1).unwrap_or_default();
    let done = match chore.as_str() {
        "needs" => needs::meet(),
        "test" => chores::test(),
        "soak" => chores::soak(),
        "four-conditions" => chores::four_conditions(&env::args().skip(2).collect::<Vec<_>>()),
        "bench" => chores::bench(&env::args().skip(2).collect::<Vec<_>>()),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(64);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
