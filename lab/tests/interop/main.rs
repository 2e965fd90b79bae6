//! Locks shared with programs that know nothing of leasehold.
#![forbid(unsafe_code)]

mod flock;
mod zookeeper;

const TAKER: &str = env!("CARGO_BIN_EXE_taker");
