//! Tests of leasehold with real processes, real faults and one clock.
//!
//! A test makes a [`Testbed`] and starts worker [`Process`]es there with a [`WorkerConfig`]. The
//! workers acquire locks, record [`Event`]s, and can be killed or stopped at any time. The
//! functions of [`check`] find violations in the recorded history; a table has histories that each
//! of them must reject.
//!
//! The [`matrix`] runs every store of [`backends`] under every fault of [`faults`] that is possible
//! on it. A [`fault_run`] starts workers, injects the fault repeatedly, and measures how long
//! it takes until every lock is granted again.
#![forbid(unsafe_code)]

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
mod peer;
pub mod picture;
mod process;
mod random;
mod redisson_peer;
pub mod report;
pub mod resources;
pub mod soak;
mod testbed;
pub mod worker;
mod worker_config;

pub use clock::{now, suspended};
pub use event::{Event, EventKind, ResourceUsage};
pub use history::{Hold, holds};
pub use lab_servers::{DEADLINE, until, until_within};
pub use observer::{
    Grants, INTRUDER_NAME, Observation, ObservedClaim, Observer, StaleClaim, open_store,
};
pub use peer::Peer;
pub use process::Process;
pub use random::Random;
pub use redisson_peer::RedissonPeer;
pub use testbed::{Route, Server, Servers, Testbed};
pub use worker_config::{
    Api, CrashAction, CrashPoint, HoldWork, Job, LockKind, OnError, Side, Start, Step, WorkerConfig,
};
