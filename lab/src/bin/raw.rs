//! Does with bare system calls what a worker does with the library; see [`lab::raw`].

use anyhow::Result;

fn main() -> Result<()> {
    lab::raw::run(&std::env::args().skip(1).collect::<Vec<_>>())
}
