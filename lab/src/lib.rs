//! Where leasehold is put to the proof: real processes that take locks and can be killed or stopped at any time, what
//! they saw by one common clock, and one checker per promise.
//!
//! A test gets a [`Site`], starts [`Process`]es of the `taker` program there with [`Orders`], and puts the [`Event`]s
//! they tell into a history that [`check`] judges. The checkers are pure, and each has tests of histories it must
//! refuse.
#![forbid(unsafe_code)]

pub mod check;
mod clock;
pub mod conditions;
mod event;
pub mod foreign;
mod history;
mod orders;
mod process;
mod random;
pub mod raw;
mod redis_site;
mod redlock_site;
pub mod report;
mod site;
pub mod specimens;
pub mod taker;
pub mod victims;

pub use clock::now;
pub use event::{Event, Uses, What};
pub use history::{Hold, holds};
pub use lab_servers::{DEADLINE, until, until_within};
pub use orders::{Api, Face, Opens, Orders, Start, Tells, Trouble, Work};
pub use process::Process;
pub use random::Random;
pub use redis_site::RedisSite;
pub use redlock_site::RedlockSite;
pub use site::Site;
