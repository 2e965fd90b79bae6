//! One Redis server: who believes what, while messages are late, lost or overtaken, connections break, and leases end.
//!
//! The clients are the library's own functions. What the server does is Lua; [`line`] says it in Rust for a mutex, and
//! [`scripts`] compares the two.

mod handover;
mod line;
mod presence;
mod scripts;

use super::{breaks, holds};
