//! The built program, from outside: each test has a store of its own, in a folder that goes with it.
#![allow(
    clippy::unwrap_used,
    reason = "these are tests, outside of test functions too"
)]

mod exclusion;
mod exit_codes;
mod folders;
mod inspection;
mod man;
mod nested;
mod outage;
mod redis;
mod sandbox;
mod servers;
mod signals;
mod stopping;
mod terminal;
mod waiting;
mod zookeeper;
