//! A process that does with the bare system calls what a taker does with the library; see [`lab::raw`].

use anyhow::Result;
use rustix::process::{Signal, set_parent_process_death_signal};

fn main() -> Result<()> {
    // A benchmark that is killed must not leave processes behind.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    lab::raw::run(&std::env::args().skip(1).collect::<Vec<_>>())
}
