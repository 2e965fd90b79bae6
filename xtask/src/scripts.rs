//! Mutants of the Lua scripts: small changes of their texts, each of which a test of the scripts on
//! the model of a server, or a suite in virtual time, must notice.
//!
//! `lab/redis-model/src/mutants.rs` makes the mutants when a server of the model compiles a script.
//! So all of them run with one build, each until the first test fails. A mutant that changes
//! nothing a client could notice is in `lab/redis-model/equivalent.tsv`, with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::parallel::run_each;
use crate::repository;
use crate::suite::{self, Program};

/// Thousands of mutants run the tests, which pays for an optimised build.
const OPTIMISED: &str = "--profile bench";
/// How many mutants run at a time. Each computes all the time.
const JOBS: usize = 2;
/// A mutant whose tests take more seconds has made one of them endless. All of them take 7.
const TIME_LIMIT: &str = "60";
/// The tests that send single requests, or compare random ones with a rule. The models of all orders
/// take too long for each mutant, or run no script.
const TESTS: &[&str] = &["queue::tests::", "votes::tests::", "redisson::tests::"];
const SLOW: &[&str] = &[
    "queue::tests::crash_detection",
    "queue::tests::ended",
    "queue::tests::handover",
    "votes::tests::exclusion",
    "votes::tests::tokens",
];
/// The ids of mutants that no test can find, and the reasons.
const EQUIVALENT: &str = "lab/redis-model/equivalent.tsv";

/// A mutant, and the modules of tests that run its script.
#[derive(Default)]
struct ScriptMutant {
    change: String,
    modules: Vec<String>,
}

/// Runs the mutants whose ids or changed lines contain one of these texts, or all.
pub(crate) fn run(texts: &[String]) -> Result<()> {
    let suites = suite::program(&format!(
        "{OPTIMISED} -p lab-simulation --all-features --test suites"
    ))?;
    let unit_tests = suite::program(&format!(
        "{OPTIMISED} -p leasehold-redis --all-features --lib"
    ))?;
    let mutants = mutants(&suites)?;
    ensure_passes(&unit_tests)?;
    let equivalent = equivalent()?;
    for id in &equivalent {
        ensure!(
            mutants.contains_key(id),
            "{EQUIVALENT} names {id}, which no script has any more"
        );
    }

    let is_chosen = |id: &str, mutant: &ScriptMutant| {
        let has = |text: &String| id == text || mutant.change.contains(text);
        !equivalent.contains(id) && (texts.is_empty() || texts.iter().any(has))
    };
    let chosen: Vec<_> = mutants
        .iter()
        .filter(|(id, mutant)| is_chosen(id, mutant))
        .collect();
    let started = Instant::now();
    let survivors = AtomicU32::new(0);
    run_each(&chosen, JOBS, |(id, mutant)| {
        if !fails(&unit_tests, TESTS, id)? && !fails_a_suite(&suites, id, mutant)? {
            println!("xtask: nothing finds {id}: {}", mutant.change);
            survivors.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    })?;

    let (all, minutes) = (chosen.len(), started.elapsed().as_secs() / 60);
    let survivors = survivors.into_inner();
    println!(
        "xtask: {} of {all} mutants of the scripts found in {minutes} min; {} others are equivalent",
        all - survivors as usize,
        equivalent.len(),
    );
    ensure!(
        survivors == 0,
        "mutants of the scripts survived: write a test, or say why in {EQUIVALENT}"
    );
    Ok(())
}

/// Runs each module of the suites once, so that the servers list the mutants of its scripts.
fn mutants(suites: &Program) -> Result<BTreeMap<String, ScriptMutant>> {
    let listed = suites.command(&[]).arg("--list").output()?;
    let listed = String::from_utf8_lossy(&listed.stdout);
    let modules: BTreeSet<&str> = listed
        .lines()
        .filter_map(|line| Some(line.split_once("::")?.0))
        .collect();
    let modules: Vec<&str> = modules.into_iter().collect();
    let found = Mutex::new(BTreeMap::<String, ScriptMutant>::new());

    run_each(&modules, JOBS, |module| {
        let folder = repository::root().join("target/scripts").join(module);
        fs::create_dir_all(&folder)?;
        let mut command = suites.command(&[]);
        command
            .arg(format!("{module}::"))
            .env("LAB_SCRIPT_MUTANTS", &folder);
        ensure!(
            command.output()?.status.success(),
            "the suites of {module} fail without a mutant"
        );

        let mut found = found.lock().expect("no thread panics");
        for (id, change) in lists(&folder)? {
            let mutant = found.entry(id).or_default();
            mutant.change = change;
            if mutant.modules.last().is_none_or(|last| last != module) {
                mutant.modules.push((*module).to_owned());
            }
        }
        Ok(())
    })?;
    Ok(found.into_inner().expect("no thread panicked"))
}

/// Reads the lists in a folder, and removes them.
fn lists(folder: &Path) -> Result<Vec<(String, String)>> {
    let mut mutants = Vec::new();
    for file in fs::read_dir(folder)? {
        let list = fs::read_to_string(file?.path())?;
        let parts = list.lines().filter_map(|line| line.split_once('\t'));
        mutants.extend(parts.map(|(id, change)| (id.to_owned(), change.to_owned())));
    }

    fs::remove_dir_all(folder)?;
    Ok(mutants)
}

fn equivalent() -> Result<BTreeSet<String>> {
    let text = fs::read_to_string(repository::root().join(EQUIVALENT))?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));

    let ids = lines.map(|line| {
        let (id, reason) = line.split_once('\t').unwrap_or((line, ""));
        ensure!(!reason.is_empty(), "{EQUIVALENT}: {line:?} has no reason");
        Ok(id.to_owned())
    });
    ids.collect()
}

/// Tests that fail by themselves would find every mutant.
fn ensure_passes(unit_tests: &Program) -> Result<()> {
    ensure!(
        !fails(unit_tests, TESTS, "none")?,
        "the unit tests fail without a mutant"
    );
    Ok(())
}

fn fails_a_suite(suites: &Program, id: &str, mutant: &ScriptMutant) -> Result<bool> {
    for module in &mutant.modules {
        if fails(suites, &[&format!("{module}::")], id)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a test fails with the mutant, or does not end.
fn fails(program: &Program, names: &[&str], id: &str) -> Result<bool> {
    let mut tests = program
        .command(&["timeout", "--kill-after=5", TIME_LIMIT])
        .args(names)
        .args(SLOW.iter().flat_map(|slow| ["--skip", slow]))
        .env("LAB_SCRIPT_MUTANT", id)
        // Inputs that fail with a mutant are neither reduced nor kept.
        .env("PROPTEST_MAX_SHRINK_ITERS", "0")
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;

    let output = tests.stdout.take().context("it is a pipe")?;
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    let has_failed = lines.any(|line| line.ends_with("... FAILED"));
    // Without a reader, the program ends when the next test has ended.
    drop(lines);
    Ok(!tests.wait()?.success() || has_failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_tests_that_fail_without_a_mutant_find_none() -> Result<()> {
        ensure_passes(&Program::at("true", "")?)?;
        ensure_passes(&Program::at("false", "")?).expect_err("a test fails");
        Ok(())
    }
}
