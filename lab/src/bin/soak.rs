//! Runs a store under mixed faults for a long time: `cargo xtask soak --minutes N --store S`.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use lab::soak::{Soak, SoakStart};
use lab::worker;

/// Runs a store under mixed faults.
#[derive(Parser)]
struct Wanted {
    /// The store
    #[arg(long)]
    store: String,
    /// How long the faults are injected
    #[arg(long)]
    minutes: f64,
    /// The file with the totals, target/soak/STORE.json if none is given
    #[arg(long)]
    state: Option<PathBuf>,
    /// Go on from the file
    #[arg(long)]
    resume: bool,
}

fn main() -> Result<()> {
    let wanted = Wanted::parse();
    let folder = lab::matrix::folder()?.with_file_name("soak");
    fs::create_dir_all(&folder)?;
    let default = folder.join(&wanted.store).with_extension("json");

    let soak = Soak {
        store: wanted.store,
        time: Duration::try_from_secs_f64(wanted.minutes * 60.0)?,
        state_file: wanted.state.unwrap_or(default),
        start: if wanted.resume {
            SoakStart::Resumed
        } else {
            SoakStart::New
        },
    };
    soak.run(&worker::program()?).map(drop)
}
