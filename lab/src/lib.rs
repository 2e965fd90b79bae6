//! Where leasehold is put to the proof: real processes that take locks and can be killed or stopped at any time, what
//! they saw by one common clock, and one checker per promise.
//!
//! A test gets a [`Testbed`], starts [`Process`]es of the `worker` program there with [`WorkerConfig`], and puts the [`Event`]s
//! they tell into a history that [`check`] judges. The checkers are pure, and each has tests of histories it must
//! refuse.
//!
//! The [`matrix`] is every store of [`testbed`] under every fault of the one list of [`faults`]: a [`fault_run`] sets a crew to
//! work, does the fault over and over, and measures how long every lock takes to be granted again.
#![forbid(unsafe_code)]

mod agreement;
pub mod backends;
pub mod baselines;
pub mod check;
mod clock;
pub mod conditions;
mod event;
pub mod fault_run;
pub mod faults;
pub mod foreign;
mod history;
mod hostile_names;
pub mod matrix;
mod observer;
mod process;
mod random;
pub mod raw;
pub mod report;
pub mod resources;
mod testbed;
pub mod worker;
mod worker_config;

pub use agreement::{Agreement, agreement};
pub use clock::now;
pub use event::{Event, EventKind, ResourceUsage};
pub use history::{Hold, holds};
pub use lab_servers::{DEADLINE, until, until_within};
pub use observer::{Observation, ObservedClaim, Observer};
pub use process::Process;
pub use random::Random;
pub use testbed::{Server, Servers, Testbed};
pub use worker_config::{
    Api, CrashAction, CrashPoint, HoldWork, LockKind, OnError, Recording, Side, Start, Step,
    StoreHandles, WorkerConfig,
};
