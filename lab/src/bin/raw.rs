//! Does with bare system calls what a worker does with the library; see [`lab::raw`].

use anyhow::Result;
use rustix::process::{Signal, set_parent_process_death_signal};

fn main() -> Result<()> {
    // A killed benchmark must not leave this process behind.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    lab::raw::run(&std::env::args().skip(1).collect::<Vec<_>>())
}
