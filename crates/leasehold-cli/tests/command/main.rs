//! Tests of the built program. Each test has a store of its own, in a temporary folder.
#![allow(
    clippy::unwrap_used,
    reason = "helper functions of tests may panic like tests"
)]

mod death;
mod descendants;
mod exclusion;
mod exit_codes;
mod folders;
mod housekeeping;
mod inspection;
mod job_control;
mod man;
mod nested;
mod outage;
mod redis;
mod sandbox;
mod servers;
mod sharing;
mod signals;
mod stopping;
mod terminal;
mod waiting;
mod zookeeper;
