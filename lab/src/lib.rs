//! Where leasehold is put to the proof: real processes that take locks and can be killed or stopped at any time, what
//! they saw by one common clock, and one checker per promise.
//!
//! A test gets a [`Site`], starts [`Process`]es of the `taker` program there with [`Orders`], and puts the [`Event`]s
//! they tell into a history that [`check`] judges. The checkers are pure, and each has tests of histories it must
//! refuse.
//!
//! The [`matrix`] is every store of [`ground`] under every fault of the one list of [`faults`]: a [`storm`] sets a crew to
//! work, does the fault over and over, and measures how long every lock takes to be granted again.
#![forbid(unsafe_code)]

mod agreement;
mod bystander;
pub mod check;
mod clock;
pub mod conditions;
mod event;
pub mod faults;
pub mod foreign;
pub mod ground;
mod history;
mod hostile;
pub mod matrix;
mod onlooker;
mod orders;
mod process;
mod random;
pub mod raw;
mod redis_site;
mod redlock_site;
pub mod report;
mod site;
pub mod specimens;
pub mod storm;
pub mod taker;
pub mod victims;

pub use agreement::{Agreement, agreement};
pub use clock::now;
pub use event::{Event, Uses, What};
pub use history::{Hold, holds};
pub use lab_servers::{DEADLINE, until, until_within};
pub use onlooker::{Claimed, Look, Onlooker};
pub use orders::{Api, Face, Fate, Halt, Opens, Orders, Side, Start, Step, Tells, Trouble, Work};
pub use process::Process;
pub use random::Random;
pub use redis_site::RedisSite;
pub use redlock_site::RedlockSite;
pub use site::Site;
