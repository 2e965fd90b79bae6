//! The matrix of stores and faults.

use anyhow::Result;
use clap::Args;

use crate::fetch;
use crate::prerequisites;
use crate::step::Step;
use crate::usage::check_names;

/// Which cells run, and for how long.
#[derive(Args, Default)]
pub(crate) struct Cells {
    /// List the cells
    #[arg(long)]
    list: bool,
    /// Run each cell for a minute
    #[arg(long)]
    long: bool,
    /// Run the cells of this store only
    #[arg(long)]
    store: Option<String>,
    /// Run the cells of this fault only
    #[arg(long)]
    fault: Option<String>,
    /// Repeat the random choices of an earlier run
    #[arg(long)]
    seed: Option<u64>,
    /// Inject faults for this time
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Run this number of cells at a time
    #[arg(long, value_name = "CELLS")]
    jobs: Option<usize>,
}

/// Lists the cells, or runs one, some or all of them.
pub(crate) fn run(cells: &Cells) -> Result<()> {
    Step::cargo("build of the lab", "build --quiet -p lab --bins").run()?;
    let lab = || Step::cargo("matrix", "run --quiet -p lab --bin lab --");
    if cells.list {
        return lab().arg("--list").run();
    }

    check_in_list(&lab().arg("--list").output()?, cells)?;
    prerequisites::install(&fetch::servers())?;
    let options = [
        ("--store", cells.store.clone()),
        ("--fault", cells.fault.clone()),
        ("--seed", cells.seed.map(|seed| seed.to_string())),
        ("--seconds", cells.seconds.map(|time| time.to_string())),
        ("--jobs", cells.jobs.map(|jobs| jobs.to_string())),
    ];
    let mut lab = lab().args(cells.long.then_some("--long"));
    for (flag, value) in options {
        if let Some(value) = value {
            lab = lab.args([flag, &value]);
        }
    }
    lab.run()
}

/// Rejects a store and a fault that the lab does not list. The valid faults are those of the store.
fn check_in_list(list: &str, cells: &Cells) -> Result<()> {
    let all: Vec<(&str, &str)> = list
        .lines()
        .filter_map(|line| line.split(' ').next()?.split_once('/'))
        .collect();

    let mut stores: Vec<&str> = all.iter().map(|(store, _)| *store).collect();
    stores.dedup();
    check_names("store", cells.store.as_slice(), &stores)?;

    let mut faults: Vec<&str> = all
        .iter()
        .filter(|(store, _)| cells.store.as_ref().is_none_or(|wanted| wanted == store))
        .map(|(_, fault)| *fault)
        .collect();
    faults.sort_unstable();
    faults.dedup();
    check_names("fault", cells.fault.as_slice(), &faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_store_and_fault_are_rejected_with_valid_names() {
        let check = |store: &str, fault: &str| {
            let cells = Cells {
                store: Some(store.to_owned()),
                fault: Some(fault.to_owned()),
                ..Cells::default()
            };
            check_in_list("file/killed E\nredis/killed E\nredis/partition E\n", &cells)
        };

        check("redis", "partition").expect("the cell exists");
        let error = check("reddis", "partition").expect_err("the store does not exist");
        assert!(error.to_string().ends_with("\n  file\n  redis"), "{error}");
        let error = check("file", "partition").expect_err("the file store has no such fault");
        assert!(
            error.to_string().ends_with("valid are:\n  killed"),
            "{error}"
        );
    }
}
