//! Runs cells of the matrix.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;
use lab::matrix::{Cell, Figures, Page, cell_named, cells, folder, keep};
use lab::worker;

/// Seconds per cell.
const SHORT: f64 = 2.0;
/// Seconds per cell with `--long`.
const LONG: f64 = 60.0;

/// Runs cells of the matrix: one, or several in their order.
#[derive(Parser)]
struct Wanted {
    /// List the cells
    #[arg(long)]
    list: bool,
    /// Run each cell for a minute
    #[arg(long)]
    long: bool,
    /// Run only the cells of this store
    #[arg(long)]
    store: Option<String>,
    /// Run only the cells of this fault
    #[arg(long)]
    fault: Option<String>,
    /// The seed of all random choices
    #[arg(long)]
    seed: Option<u64>,
    /// How long each cell runs
    #[arg(long)]
    seconds: Option<f64>,
}

fn main() -> Result<()> {
    let wanted = Wanted::parse();
    if wanted.list {
        cells().for_each(|cell| {
            println!(
                "{:<32} {}  {}",
                cell.name(),
                cell.guarantee,
                cell.fault.description
            );
        });
        return Ok(());
    }

    let folder = folder()?;
    let seconds = wanted
        .seconds
        .unwrap_or(if wanted.long { LONG } else { SHORT });
    let run = Run {
        folder: &folder,
        time: Duration::try_from_secs_f64(seconds)?,
        seed: wanted.seed,
    };

    match (&wanted.store, &wanted.fault) {
        (Some(store), Some(fault)) => run.one(&cell_named(store, fault)?).map(drop),
        (store, fault) => {
            let is_wanted = |cell: &Cell| {
                store
                    .as_ref()
                    .is_none_or(|store| store == cell.backend.name)
                    && fault.as_ref().is_none_or(|fault| fault == cell.fault.name)
            };
            let chosen: Vec<Cell> = cells().filter(is_wanted).collect();
            ensure!(
                !chosen.is_empty(),
                "--list prints the stores and the faults"
            );
            run.all(&chosen)
        }
    }
}

struct Run<'a> {
    folder: &'a Path,
    time: Duration,
    seed: Option<u64>,
}

impl Run<'_> {
    fn one(&self, cell: &Cell) -> Result<Figures> {
        let worker = worker::program()?;
        let seed = self.seed.unwrap_or_else(|| lab::now() % 1_000_000);
        let figures = cell.run(&worker, seed, self.time, self.folder)?;
        println!("{}", figures.line());
        if let Some(overlaps) = figures.overlaps_line() {
            println!("  {overlaps}");
        }
        keep(self.folder, &figures)?;
        Ok(figures)
    }

    /// Runs the cells in order.
    fn all(&self, chosen: &[Cell]) -> Result<()> {
        let mut page = Page::default();
        for cell in chosen {
            let outcome = self.one(cell);
            if let Err(error) = &outcome {
                println!("FAILED {error:#}");
            }
            page.add(cell, outcome);
            self.write(&page, chosen.len())?;
        }

        let failures = page.failures();
        ensure!(failures == 0, "{failures} of {} cells failed", chosen.len());
        Ok(())
    }

    /// Writes the tables after each cell, so that an aborted long run leaves its results too.
    fn write(&self, page: &Page, count: usize) -> Result<()> {
        let seconds = self.time.as_secs_f64();
        let how = format!("{count} cells, {seconds} s of faults each.");

        fs::write(self.folder.join("matrix.json"), page.json()?)?;
        Ok(fs::write(self.folder.join("matrix.md"), page.table(&how))?)
    }
}
