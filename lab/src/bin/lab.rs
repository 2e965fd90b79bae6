//! Runs cells of the matrix.
//!
//! - `lab --list` lists the cells.
//! - `lab --store S --fault F --seed N --seconds T` runs one cell.
//! - `lab [--long] [--seconds T] [--jobs N]` runs all cells.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lab::matrix::{Cell, Figures, Page, cell_named, cells, folder, keep};

/// Seconds per cell.
const SHORT: f64 = 2.0;
/// Seconds per cell with `--long`.
const LONG: f64 = 60.0;

#[derive(Default)]
struct Wanted {
    list: bool,
    long: bool,
    store: Option<String>,
    fault: Option<String>,
    seed: Option<u64>,
    seconds: Option<f64>,
    jobs: Option<usize>,
}

fn main() -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn work() -> Result<()> {
    let wanted = wanted()?;
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
    let jobs = wanted.jobs.unwrap_or(1).max(1);
    let run = Run {
        folder: &folder,
        time: Duration::try_from_secs_f64(seconds)?,
        seed: wanted.seed,
        jobs,
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
            let is_all = store.is_none() && fault.is_none();
            run.all(&chosen, wanted.long && is_all)
        }
    }
}

fn wanted() -> Result<Wanted> {
    let mut wanted = Wanted::default();
    let mut args = std::env::args().skip(1);

    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--list" => wanted.list = true,
            "--long" => wanted.long = true,
            "--store" => wanted.store = Some(value()?),
            "--fault" => wanted.fault = Some(value()?),
            "--seed" => wanted.seed = Some(value()?.parse()?),
            "--seconds" => wanted.seconds = Some(value()?.parse()?),
            "--jobs" => wanted.jobs = Some(value()?.parse()?),
            _ => bail!(
                "usage: lab [--list] [--long] [--store S] [--fault F] \
                 [--seed N] [--seconds T] [--jobs N]"
            ),
        }
    }
    Ok(wanted)
}

struct Run<'a> {
    folder: &'a Path,
    time: Duration,
    seed: Option<u64>,
    /// The number of cells that run at the same time. A cell mostly waits.
    jobs: usize,
}

impl Run<'_> {
    fn one(&self, cell: &Cell) -> Result<Figures> {
        let worker = std::env::current_exe()?.with_file_name("worker");
        ensure!(
            worker.exists(),
            "{} is missing: cargo build -p lab --bins",
            worker.display()
        );
        let seed = self.seed.unwrap_or_else(|| lab::now() % 1_000_000);
        let worker = worker
            .to_str()
            .context("the path of the worker is not UTF-8")?;

        let figures = cell.run(worker, seed, self.time, self.folder)?;
        println!("{}", figures.line());
        if let Some(overlaps) = figures.overlaps_line() {
            println!("  {overlaps}");
        }
        keep(self.folder, &figures)?;
        Ok(figures)
    }

    /// Runs the cells in order, `jobs` at a time. With `is_kept`, also writes `docs/matrix.md`.
    fn all(&self, chosen: &[Cell], is_kept: bool) -> Result<()> {
        let pages = Pages {
            run: self,
            chosen,
            is_kept,
            outcomes: Mutex::new(chosen.iter().map(|_| None).collect()),
        };
        let next = AtomicUsize::new(0);

        thread::scope(|scope| {
            let work = || -> Result<()> {
                while let Some(cell) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    pages.add(cell, self.one(cell))?;
                }
                Ok(())
            };
            let workers: Vec<_> = (0..self.jobs).map(|_| scope.spawn(work)).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().expect("no panic"))
        })?;

        let failures = pages.page().failures();
        ensure!(failures == 0, "{failures} of {} cells failed", chosen.len());
        Ok(())
    }
}

/// The outcomes of the cells so far.
struct Pages<'a> {
    run: &'a Run<'a>,
    chosen: &'a [Cell],
    is_kept: bool,
    outcomes: Mutex<Vec<Option<Result<Figures>>>>,
}

impl Pages<'_> {
    /// Adds an outcome and writes the pages, so that an aborted long run leaves its results too.
    fn add(&self, cell: &Cell, outcome: Result<Figures>) -> Result<()> {
        if let Err(error) = &outcome {
            println!("FAILED {error:#}");
        }
        let at = self
            .chosen
            .iter()
            .position(|chosen| chosen.name() == cell.name())
            .expect("it was chosen");

        self.outcomes.lock().expect("no panic")[at] = Some(outcome);
        let count = self.chosen.len();
        let seconds = self.run.time.as_secs_f64();
        let jobs = self.run.jobs;
        let how = format!("{count} cells, {seconds} s of faults each, {jobs} at a time.");

        let page = self.page();
        std::fs::write(self.run.folder.join("matrix.json"), page.json()?)?;
        std::fs::write(self.run.folder.join("matrix.md"), page.table(&how))?;
        if self.is_kept {
            let docs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs"));
            std::fs::create_dir_all(docs)?;
            std::fs::write(docs.join("matrix.md"), page.table(&how))?;
        }
        Ok(())
    }

    fn page(&self) -> Page {
        let mut page = Page::default();
        let outcomes = self.outcomes.lock().expect("no panic");
        for (cell, outcome) in self.chosen.iter().zip(outcomes.iter()) {
            if let Some(outcome) = outcome {
                page.add(cell, outcome);
            }
        }
        page
    }
}
