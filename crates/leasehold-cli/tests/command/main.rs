//! The built program, from outside: each test has a store of its own, in a folder that goes with it.
#![allow(clippy::unwrap_used, reason = "these are tests, outside of test functions too")]

mod ends;
mod exclusion;
mod folders;
mod lines;
mod nested;
mod outage;
mod papers;
mod place;
mod redis;
mod servers;
mod signals;
mod stopping;
mod terminal;
mod waiting;
mod zookeeper;
