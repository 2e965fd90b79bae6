//! A model of a Redis server: the commands that leasehold's scripts use, and the scripts. They run
//! in the Lua that Redis has.
//!
//! The caller gives the time of each request, so a history can run in virtual time. A test compares
//! the replies with those of a real server, on random commands and scripts.
#![forbid(unsafe_code)]

mod cluster;
mod data;
mod group;
mod hashes;
mod host;
mod keys;
mod known;
mod lists;
mod mutants;
mod replication;
mod reply;
mod resp;
mod script;
mod sentinel;
mod server;
mod sorted_sets;
mod strings;

pub use cluster::Cluster;
pub use host::{Host, Wire};
pub use reply::Reply;
pub use sentinel::Sentinels;
pub use server::{Connection, Message, Restart, Server};
