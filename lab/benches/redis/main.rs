//! The Redis store beside its raw limit and other libraries, each client in a process of its own on a CPU of its own:
//! `cargo bench -p lab --bench redis [-- FIGURE…]`.
//!
//! In each of five rounds every peer has its turn, so that whatever else the machine does meets all alike; a figure is the
//! median of the rounds, and a ratio that of the rounds' ratios.

mod client;
mod cpus;
mod figures;
mod holds;
mod peers;
mod picture;
mod table;
mod workload;

use std::env;

use anyhow::Result;

fn main() -> Result<()> {
    let args: Vec<String> = env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    match args.split_first() {
        Some((role, [peer, url])) if role == "peer" => peers::serve(peer, url),
        _ => figures::show(&args),
    }
}
