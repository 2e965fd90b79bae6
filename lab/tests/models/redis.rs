//! One Redis server: who believes what, while messages are late, lost or overtaken, connections break, and leases end.
//!
//! The clients are the library's own functions. What the server does is Lua; [`lock_model`] says it in Rust for a mutex, and
//! [`scripts`] compares the two.

mod crash_detection;
mod handover;
mod lock_model;
mod scripts;

use super::{breaks, holds};
