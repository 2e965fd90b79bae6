//! The chores of this repository: `cargo xtask test`, `cargo xtask lab`, `cargo xtask four-conditions`, `cargo xtask agreement`,
//! `cargo xtask soak`, `cargo xtask bench`, `cargo xtask mutants`, `cargo xtask needs`.

mod chores;
mod jars;
mod lab;
mod mutants;
mod needs;
mod peers;
mod step;
mod wheels;

use std::env;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask CHORE
  needs    fetches and installs what the others need; they do so by themselves
  test     everything that must pass before a change goes in; what CI runs
  soak     a million acquire/release cycles over eight processes, in peace, in release mode
  lab      every store under every fault, for a few seconds each, or with --long for a minute each, with a page in docs/matrix.md;
           --jobs N runs so many at a time, --list lists the cells, --store S --fault F --seed N --seconds T runs one, again exactly
  four-conditions
           locks as articles write them and ours, under the same faults; writes docs/four-conditions.md (about six minutes);
           those named alone: the others' figures are the last that were measured
  agreement RELEASE [KILLS [SEED]]
           whether three ZooKeeper servers, Debian's (`installed`) or the `newest`, agree after their leader was killed that often
  bench    the benchmarks, or those named, each beside its raw limit; figures go to target/bench
  mutants  makes each bug of lab/mutants, or those whose names begin as said, in a copy of this tree, and shows which check finds it";

fn main() -> ExitCode {
    let chore = env::args().nth(1).unwrap_or_default();
    let done = match chore.as_str() {
        "needs" => needs::meet().and_then(|()| peers::fetch_for_tests()),
        "test" => chores::test(),
        "soak" => chores::soak(),
        "lab" => lab::run(&env::args().skip(2).collect::<Vec<_>>()),
        "mutants" => mutants::run(&env::args().skip(2).collect::<Vec<_>>()),
        "four-conditions" => chores::four_conditions(&env::args().skip(2).collect::<Vec<_>>()),
        "agreement" => chores::agreement(&env::args().skip(2).collect::<Vec<_>>()),
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
