//! The common faults on a Redis server, and the faults that only a Redis server has.

mod cancelled;
mod clocks;
mod connections;
mod killed;
mod runtimes;
mod traces;

use anyhow::Result;
use lab::Testbed;
use lab::backends::redis;
use lab_servers::Redis;

use crate::WORKER;

fn testbed(settings: &str) -> Result<Testbed> {
    redis::start(WORKER, Redis::setup(), settings)
}
