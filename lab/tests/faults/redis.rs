//! The same on a Redis server, and what else can happen to one.

mod cancelled;
mod connections;
mod forgotten;
mod killed;
mod runtimes;
mod traces;

use anyhow::Result;
use lab::RedisSite;
use lab_servers::Redis;

use crate::TAKER;

fn site(settings: &str) -> Result<RedisSite> {
    RedisSite::start(TAKER, Redis::setup(), settings)
}
