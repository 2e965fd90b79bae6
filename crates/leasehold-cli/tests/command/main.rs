//! Tests of the built program. Each test has a store of its own, in a temporary folder.

// xtask: busy
// Each of these starts fifty commands within three seconds.
// xtask: alone 3 outage::
// Sessions of one second, and a server in Java.
// xtask: alone 4 zookeeper::

#![allow(
    clippy::unwrap_used,
    reason = "helper functions of tests may panic like tests"
)]

mod agents;
mod also_store;
mod background;
mod completions;
mod death;
mod descendants;
mod doctor;
mod elect;
mod exclusion;
mod exit_codes;
mod folders;
mod from_flock;
mod holding;
mod housekeeping;
mod inspection;
mod job_control;
mod keepers;
mod limits;
mod logging;
mod losses;
mod machine_store;
mod man;
mod missing_connections;
mod mistakes;
mod nested;
mod once;
mod other_languages;
mod outage;
mod owners;
mod postgres;
mod recipes;
mod redis;
mod remedies;
mod sandbox;
mod scripts;
mod serve;
mod servers;
mod several;
mod sharing;
mod signals;
mod slot_numbers;
mod stopping;
mod stuck_output;
mod systemd;
mod terminal;
mod unavailable;
mod unreadable;
mod waiting;
mod watchdog;
mod zookeeper;
