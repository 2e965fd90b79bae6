//! One Redis server, while messages are late, lost or reordered, connections break, and leases end.
//!
//! The clients call the library's own functions. The server runs Lua: [`lock_model`] is the same
//! logic for a mutex, written in Rust. [`scripts`] compares the two.

mod crash_detection;
mod handover;
mod layout;
mod lock_model;
mod scripts;

use super::{breaks, holds};
