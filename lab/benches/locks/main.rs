//! The stores beside their limits and other libraries:
//! `cargo bench -p lab --bench locks [-- FIGURE…]`.
//!
//! Each client runs in a process of its own, which is pinned to one CPU.
//! In each of five rounds the benchmark measures every peer, so that other load on the machine
//! affects all peers alike. A figure is the median of the rounds, and a ratio is the median of the
//! rounds' ratios.

mod client;
mod figures;
mod holds;
mod peers;
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
