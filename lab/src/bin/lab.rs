//! Runs cells of the matrix: `lab --list`, `lab --store S --fault F --seed N --seconds T`, `lab [--long] [--seconds T]`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lab::matrix::{Cell, Page, cell_named, cells, folder, keep};

/// Seconds per cell.
const SHORT: f64 = 2.0;
const LONG: f64 = 60.0;

#[derive(Default)]
struct Wanted {
    list: bool,
    long: bool,
    store: Option<String>,
    fault: Option<String>,
    seed: Option<u64>,
    seconds: Option<f64>,
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
        cells().for_each(|cell| println!("{:<32} {}  {}", cell.name(), cell.expect, cell.fault.does));
        return Ok(());
    }
    let folder = folder()?;
    let seconds = wanted.seconds.unwrap_or(if wanted.long { LONG } else { SHORT });
    let run = Run { folder: &folder, time: Duration::try_from_secs_f64(seconds)?, seed: wanted.seed };
    match (&wanted.store, &wanted.fault) {
        (Some(store), Some(fault)) => run.one(&cell_named(store, fault)?).map(drop),
        (store, fault) => {
            let is_wanted = |cell: &Cell| {
                store.as_ref().is_none_or(|store| store == cell.store.name())
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
        let mut value = || args.next().with_context(|| format!("{arg} wants a value"));
        match arg.as_str() {
            "--list" => wanted.list = true,
            "--long" => wanted.long = true,
            "--store" => wanted.store = Some(value()?),
            "--fault" => wanted.fault = Some(value()?),
            "--seed" => wanted.seed = Some(value()?.parse()?),
            "--seconds" => wanted.seconds = Some(value()?.parse()?),
            _ => bail!("usage: lab [--list] [--long] [--store S] [--fault F] [--seed N] [--seconds T]"),
        }
    }
    Ok(wanted)
}

struct Run<'a> {
    folder: &'a Path,
    time: Duration,
    seed: Option<u64>,
}

impl Run<'_> {
    fn one(&self, cell: &Cell) -> Result<lab::matrix::Figures> {
        let taker = std::env::current_exe()?.with_file_name("taker");
        ensure!(taker.exists(), "{} is missing: cargo build -p lab --bins", taker.display());
        let seed = self.seed.unwrap_or_else(|| lab::now() % 1_000_000);
        let taker = taker.to_str().context("the path of the taker is not text")?;
        let figures = cell.run(taker, seed, self.time, self.folder)?;
        println!("{}", figures.line());
        keep(self.folder, &figures)?;
        Ok(figures)
    }

    /// One after another; a page of all in the repository if this is the long form.
    fn all(&self, chosen: &[Cell], is_kept: bool) -> Result<()> {
        let how = format!("{} cells, {} s of faults each, one after another.", chosen.len(), self.time.as_secs_f64());
        let docs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs"));
        let mut page = Page::default();
        for cell in chosen {
            let outcome = self.one(cell);
            if let Err(error) = &outcome {
                println!("FAILED {error:#}");
            }
            page.add(cell, &outcome);
            // At once: a long run that is broken off has shown something too.
            std::fs::write(self.folder.join("matrix.json"), page.json()?)?;
            std::fs::write(self.folder.join("matrix.md"), page.table(&how))?;
            if is_kept {
                std::fs::create_dir_all(docs)?;
                std::fs::write(docs.join("matrix.md"), page.table(&how))?;
            }
        }
        ensure!(page.failures() == 0, "{} of {} cells failed", page.failures(), chosen.len());
        Ok(())
    }
}
