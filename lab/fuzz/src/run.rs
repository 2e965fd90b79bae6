//! Running a target: first the kept inputs, then random ones.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use fastrand::Rng;

use crate::corpus::{self, Corpus};
use crate::limits;
use crate::mutate;
use crate::targets::Target;

/// How long a target runs.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// The seed of the first random input; each further one has the next seed.
    pub seed: u64,
    /// How long the target runs on random inputs, after the inputs of the corpus.
    pub time: Duration,
}

/// Runs a target. Returns the number of random inputs.
///
/// # Errors
/// Names the input that did wrong, the line that keeps it, and the command that repeats it.
pub fn run(target: &Target, budget: Budget) -> Result<u64> {
    let corpus = Corpus::read(target.name)?;
    for (name, input) in corpus.inputs() {
        if let Some(violation) = limits::violation(target, input) {
            bail!("the kept input {name:?} of {}: {violation}", target.name);
        }
    }

    let start = Instant::now();
    let mut inputs = 0;
    while start.elapsed() < budget.time {
        let seed = budget.seed.wrapping_add(inputs);
        limits::note_seed(seed);
        let input = random_input(target, &corpus, seed);
        if let Some(violation) = limits::violation(target, &input) {
            bail!(report(target, seed, &input, &violation));
        }
        inputs += 1;
    }

    // The file exists only to be read after an abort.
    let _ = fs::remove_file(limits::seed_file());
    Ok(inputs)
}

fn random_input(target: &Target, corpus: &Corpus, seed: u64) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed);
    let mut input = mutate::draw(corpus, &mut rng);
    (target.repair)(&mut input, &mut rng);
    input
}

/// Describes the smallest input that was found with the violation of an input.
fn report(target: &Target, seed: u64, input: &[u8], violation: &str) -> String {
    let small = minimised(target, input);
    let name = target.name;
    let line = corpus::line("NAME", &small);

    format!(
        "{violation}\nkeep it in lab/fuzz/corpus/{name}.txt:\n{line}\n\
         repeat with: cargo xtask fuzz --seconds 1 --seed {seed} {name}"
    )
}

/// Removes parts of an input while it still does wrong.
fn minimised(target: &Target, input: &[u8]) -> Vec<u8> {
    let until = Instant::now() + MINIMISING_MAX;
    let mut small = input.to_vec();
    let mut len = small.len().next_power_of_two();

    while len > 0 && Instant::now() < until {
        let mut at = 0;
        while at < small.len() && Instant::now() < until {
            let mut shorter = small.clone();
            shorter.drain(at..(at + len).min(small.len()));
            if limits::violation(target, &shorter).is_some() {
                small = shorter;
            } else {
                at += len;
            }
        }
        len /= 2;
    }
    small
}

const MINIMISING_MAX: Duration = Duration::from_secs(10);
