//! A simulated world: leasehold runs on one thread, in virtual time, against a store that keeps no
//! more than its contract, or against the servers of the stores on Redis.
//!
//! One [`Plan`] is one history. It is drawn from a seed, and so is every choice that is made while
//! it runs: the time of each message, lost and repeated messages, and the order of tasks. So a seed
//! replays exactly. After each step the world checks the rules in `invariants.rs` and `client/`.

mod backend;
mod client;
mod clock;
mod connection;
mod event;
mod fault;
mod history;
mod hold;
mod invariants;
mod minimise;
mod network;
pub mod plan;
mod process;
mod redis_servers;
mod server;
mod store;
mod task;
pub mod testbed;
mod world;

pub use event::{Counts, Detail, Event, Violation};
pub use history::{Report, run};
pub use minimise::minimise;
pub use plan::Plan;
