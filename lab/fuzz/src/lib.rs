//! Random inputs for everything that leasehold reads from a service, a file or a user.
//!
//! A [`Target`] takes any bytes. It must return in bounded time, without a panic, and without
//! memory in proportion to a number that it has read. The inputs are made from kept ones, by
//! mutations that know numbers, lines and checksums. README.md has the commands.
#![forbid(unsafe_code)]

mod corpus;
mod limits;
mod mutate;
mod run;
mod targets;

pub use corpus::Corpus;
pub use run::{Budget, run};
pub use targets::{TARGETS, Target};
