//! What a store guarantees when processes, servers and the network fail, where no cell of the
//! matrix shows it. The tests use real processes and one clock.
#![forbid(unsafe_code)]

mod effects;
mod redis;
mod redlock;
mod zookeeper;

const WORKER: &str = env!("CARGO_BIN_EXE_worker");
