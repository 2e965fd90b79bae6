//! Where leasehold is put to the proof: real processes that take locks and can be killed or stopped at any time, what
//! they saw by one common clock, and one checker per promise.
//!
//! A test gets a [`FolderTestbed`], starts [`Process`]es of the `worker` program there with [`WorkerConfig`], and puts the [`Event`]s
//! they tell into a history that [`check`] judges. The checkers are pure, and each has tests of histories it must
//! refuse.
//!
//! The [`matrix`] is every store of [`testbed`] under every fault of the one list of [`faults`]: a [`fault_run`] sets a crew to
//! work, does the fault over and over, and measures how long every lock takes to be granted again.
#![forbid(unsafe_code)]

mod agreement;
pub mod baselines;
mod canary;
pub mod check;
mod clock;
pub mod conditions;
mod event;
pub mod fault_run;
pub mod faults;
mod folder_testbed;
pub mod foreign;
mod history;
mod hostile_names;
pub mod matrix;
mod observer;
mod process;
mod random;
pub mod raw;
mod redis_testbed;
mod redlock_testbed;
pub mod report;
pub mod resources;
pub mod testbed;
pub mod worker;
mod worker_config;

pub use agreement::{Agreement, agreement};
pub use clock::now;
pub use event::{Event, EventKind, ResourceUsage};
pub use folder_testbed::FolderTestbed;
pub use history::{Hold, holds};
pub use lab_servers::{DEADLINE, until, until_within};
pub use observer::{Observation, ObservedClaim, Observer};
pub use process::Process;
pub use random::Random;
pub use redis_testbed::RedisTestbed;
pub use redlock_testbed::RedlockTestbed;
pub use worker_config::{
    Api, CrashAction, CrashPoint, HoldWork, LockKind, OnError, Recording, Side, Start, Step,
    StoreHandles, WorkerConfig,
};
