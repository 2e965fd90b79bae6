//! Runs a store under mixed faults for a long time: `cargo xtask soak --minutes N --store S`.
//!
//! `soak --store S --minutes N --state FILE [--resume]`

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lab::soak::{Soak, SoakStart};

const USAGE: &str = "usage: soak --store S --minutes N --state FILE [--resume]";

fn main() -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("soak: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn work() -> Result<()> {
    let soak = wanted()?;
    if let Some(folder) = soak.state_file.parent() {
        fs::create_dir_all(folder)?;
    }
    let worker = std::env::current_exe()?.with_file_name("worker");
    let worker = worker
        .to_str()
        .context("the path of the worker is not UTF-8")?;

    soak.run(worker).map(drop)
}

fn wanted() -> Result<Soak> {
    let mut store = None;
    let mut minutes = None;
    let mut state_file = None;
    let mut start = SoakStart::New;
    let mut args = std::env::args().skip(1);

    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--store" => store = Some(value()?),
            "--minutes" => minutes = Some(value()?.parse::<f64>()?),
            "--state" => state_file = Some(PathBuf::from(value()?)),
            "--resume" => start = SoakStart::Resumed,
            _ => bail!(USAGE),
        }
    }
    Ok(Soak {
        store: store.context(USAGE)?,
        time: Duration::try_from_secs_f64(minutes.context(USAGE)? * 60.0)?,
        state_file: state_file.context(USAGE)?,
        start,
    })
}
