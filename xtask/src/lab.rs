//! The matrix of stores and faults.

use anyhow::Result;
use clap::Args;

use crate::prerequisites;
use crate::step::Step;
use crate::usage::check_names;

/// Which cells run, and for how long.
#[derive(Args)]
pub(crate) struct Cells {
    /// List the cells
    #[arg(long)]
    list: bool,
    /// Run each cell for a minute and write docs/matrix.md
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
    if cells.list {
        return lab().arg("--list").run();
    }

    check_cell_names(cells)?;
    prerequisites::install_servers()?;
    lab()
        .args(arguments(cells).iter().map(String::as_str))
        .run()
}

fn lab() -> Step {
    Step::cargo("matrix", "run --quiet -p lab --bin lab --")
}

/// Rejects names that the lab does not list.
fn check_cell_names(cells: &Cells) -> Result<()> {
    if cells.store.is_none() && cells.fault.is_none() {
        return Ok(());
    }

    let list = lab().arg("--list").output()?;
    let names: Vec<(&str, &str)> = list
        .lines()
        .filter_map(|line| line.split_whitespace().next()?.split_once('/'))
        .collect();
    check_in_list(&names, cells.store.as_ref(), cells.fault.as_ref())
}

/// Checks the store first. The valid faults are those of the store.
fn check_in_list(
    cells: &[(&str, &str)],
    store: Option<&String>,
    fault: Option<&String>,
) -> Result<()> {
    if let Some(store) = store {
        let mut stores: Vec<&str> = cells.iter().map(|cell| cell.0).collect();
        stores.dedup();
        check_names("store", std::slice::from_ref(store), &stores)?;
    }

    if let Some(fault) = fault {
        let is_wanted = |cell: &&(&str, &str)| store.is_none_or(|store| store == cell.0);
        let mut faults: Vec<&str> = cells.iter().filter(is_wanted).map(|cell| cell.1).collect();
        faults.sort_unstable();
        faults.dedup();
        check_names("fault", std::slice::from_ref(fault), &faults)?;
    }

    Ok(())
}

fn arguments(cells: &Cells) -> Vec<String> {
    let options = [
        ("--store", cells.store.clone()),
        ("--fault", cells.fault.clone()),
        ("--seed", cells.seed.map(|seed| seed.to_string())),
        (
            "--seconds",
            cells.seconds.map(|seconds| seconds.to_string()),
        ),
        ("--jobs", cells.jobs.map(|jobs| jobs.to_string())),
    ];
    let given = options
        .into_iter()
        .filter_map(|(flag, value)| Some([flag.to_owned(), value?]));

    cells
        .long
        .then(|| "--long".to_owned())
        .into_iter()
        .chain(given.flatten())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELLS: [(&str, &str); 3] = [
        ("file", "killed"),
        ("redis", "killed"),
        ("redis", "partition"),
    ];

    #[test]
    fn unknown_store_and_fault_are_rejected_with_valid_names() {
        let check = |store: &str, fault: &str| {
            check_in_list(&CELLS, Some(&store.to_owned()), Some(&fault.to_owned()))
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

    #[test]
    fn arguments_are_passed_to_the_lab() {
        let cells = Cells {
            list: false,
            long: true,
            store: Some("redis".to_owned()),
            fault: None,
            seed: Some(7),
            seconds: Some(2.5),
            jobs: None,
        };

        assert_eq!(
            arguments(&cells),
            [
                "--long",
                "--store",
                "redis",
                "--seed",
                "7",
                "--seconds",
                "2.5"
            ]
        );
    }
}
