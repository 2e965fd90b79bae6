//! What a store guarantees without faults. The tests use real processes.
#![forbid(unsafe_code)]

mod articles;
mod found;
mod guarantees;
mod order;
mod owner;
mod peer_defects;
mod soak;

const WORKER: &str = env!("CARGO_BIN_EXE_worker");
