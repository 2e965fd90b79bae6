//! The same on a Redis server, and what else can happen to one.

mod soak;
mod storm;
