//! What a store guarantees without faults. The tests use real processes.

// These tests start a hundred processes at once.
// xtask: alone 4

#![forbid(unsafe_code)]

mod articles;
mod exactly_one_writer;
mod jobs;
mod owner;
mod postgres_rows;
mod soak;

const WORKER: &str = env!("CARGO_BIN_EXE_worker");
