//! Locks shared with real programs and libraries other than leasehold.

// xtask: busy

#![forbid(unsafe_code)]

mod flock;
mod postgres;
mod recognised;
mod redis_locks;
mod redisson;
mod zookeeper;

const WORKER: &str = env!("CARGO_BIN_EXE_worker");
