//! The chores of this repository: `cargo xtask test`, `cargo xtask soak`, `cargo xtask bench`, `cargo xtask needs`.

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
  bench    the benchmarks, or those named, each beside its raw limit; figures go to target/bench";

fn main() -> ExitCode {
    let chore = env::args().nth(1).unwrap_or_default();
    let done = match chore.as_str() {
        "needs" => needs::meet().and_then(|()| peers::fetch_for_tests()),
        "test" => chores::test(),
        "soak" => chores::soak(),
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
