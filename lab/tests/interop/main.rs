//! Locks shared with programs that know nothing of leasehold.
#![forbid(unsafe_code)]

mod flock;
mod redis_locks;
mod zookeeper;

const WORKER: &str = env!("CARGO_BIN_EXE_worker");
