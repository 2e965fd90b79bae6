//! What a store guarantees without faults. The tests use real processes.
#![forbid(unsafe_code)]

mod articles;
mod owner;
mod soak;

const WORKER: &str = env!("CARGO_BIN_EXE_worker");
