//! Many cycles under each kind of fault. `LAB_CYCLES` says how many; `cargo xtask soak` runs a million.

use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use lab::{Orders, RedisSite, Work};
use lab_servers::{Redis, Setup, Wire};

use crate::TAKER;

use crate::storm::{Storm, check_all, check_tokens};

const CYCLES: u64 = 4_000;
const LEASE: Duration = Duration::from_millis(1_500);

fn cycles() -> Result<u64> {
    Ok(std::env::var("LAB_CYCLES").map_or(Ok(CYCLES), |cycles| cycles.parse())?)
}

fn orders() -> Orders {
    let names = ["a", "b", "c"].map(str::to_owned).to_vec();
    Orders {
        names,
        lease: Some(LEASE.as_millis().try_into().expect("a few")),
        work: Work::Nothing,
        ..Orders::default()
    }
}

const SETTINGS: &str = "crash-grace=500ms";

fn storm(test: &str, setup: Setup) -> Result<Storm<RedisSite>> {
    Storm::begin(test, RedisSite::start(TAKER, setup, SETTINGS)?, cycles()?, orders())
}

#[test]
fn soak_with_holders_killed() -> Result<()> {
    let mut storm = storm("soak_with_holders_killed", Redis::setup())?;
    storm.rage(Duration::from_secs(1), Storm::kill_holder)?;
    check_all(&storm.end()?)
}

#[test]
fn soak_with_connections_killed() -> Result<()> {
    let mut storm = storm("soak_with_connections_killed", Redis::setup())?;
    storm.rage(Duration::from_millis(300), |storm| {
        let kind = if storm.below(2) == 0 { "normal" } else { "pubsub" };
        storm.site.redis.command(&["CLIENT", "KILL", "TYPE", kind]);
        Ok(())
    })?;
    check_all(&storm.end()?)
}

#[test]
fn soak_with_restarts_that_keep_everything() -> Result<()> {
    let mut storm = storm("soak_with_restarts_that_keep_everything", Redis::setup().append_only("always"))?;
    storm.rage(Duration::from_millis(700), |storm| {
        storm.site.redis.restart();
        Ok(())
    })?;
    check_all(&storm.end()?)
}

/// Exclusion is not promised then: what the server has forgotten is free.
#[test]
fn soak_with_restarts_that_forget() -> Result<()> {
    let mut storm = storm("soak_with_restarts_that_forget", Redis::setup())?;
    storm.rage(Duration::from_millis(700), |storm| {
        storm.site.redis.restart();
        Ok(())
    })?;
    check_tokens(&storm.end()?).map(drop)
}

/// Stopped for longer than the lease, it finds that it holds no more.
#[test]
fn soak_with_holders_stopped() -> Result<()> {
    let mut storm = storm("soak_with_holders_stopped", Redis::setup())?;
    storm.rage(Duration::from_millis(200), |storm| {
        let number = storm.at_random()?;
        storm.stop_for(number, LEASE.mul_f64(1.2))
    })?;
    check_all(&storm.end()?)
}

#[test]
fn soak_with_the_server_stopped() -> Result<()> {
    let mut storm = storm("soak_with_the_server_stopped", Redis::setup())?;
    storm.rage(Duration::from_millis(500), |storm| {
        let millis = storm.below(1_000);
        let redis = &storm.site.redis;
        for_a_while(millis, |on| if on { redis.pause() } else { redis.resume() });
        Ok(())
    })?;
    check_all(&storm.end()?)
}

#[test]
fn soak_with_scripts_forgotten() -> Result<()> {
    let mut storm = storm("soak_with_scripts_forgotten", Redis::setup())?;
    storm.rage(Duration::from_millis(20), |storm| {
        storm.site.redis.command(&["SCRIPT", "FLUSH"]);
        Ok(())
    })?;
    check_all(&storm.end()?)
}

/// Exclusion is not promised then.
#[test]
fn soak_with_everything_deleted() -> Result<()> {
    let mut storm = storm("soak_with_everything_deleted", Redis::setup())?;
    storm.rage(Duration::from_millis(400), |storm| {
        storm.site.redis.command(&["FLUSHALL"]);
        Ok(())
    })?;
    check_tokens(&storm.end()?).map(drop)
}

/// Connections cut, frozen, deaf, and answers late or lost; everybody is behind the same wire, so it takes longer.
#[test]
fn soak_with_a_bad_wire() -> Result<()> {
    let site = RedisSite::start(TAKER, Redis::setup(), SETTINGS)?;
    let wire = Wire::to(site.redis.address());
    let by_wire = Orders { store: format!("{}?{SETTINGS}", wire.url_of("redis")), ..orders() };
    let mut storm = Storm::begin("soak_with_a_bad_wire", site, cycles()? / 4, by_wire)?;
    storm.rage(Duration::from_millis(300), |storm| {
        trouble(&wire, storm.below(6), storm.below(700));
        Ok(())
    })?;
    wire.delay(Duration::ZERO);
    wire.drop_replies(0);
    check_all(&storm.end()?)
}

fn trouble(wire: &Wire, kind: u64, millis: u64) {
    match kind {
        0 => wire.cut(),
        1 => wire.deafen(),
        2 => wire.drop_replies(3),
        3 => wire.delay(Duration::from_millis(millis / 100)),
        4 => for_a_while(millis, |on| wire.freeze(on)),
        _ => for_a_while(millis, |on| wire.hold_replies(on)),
    }
}

/// The fault lasts as long.
fn for_a_while(millis: u64, switch: impl Fn(bool)) {
    switch(true);
    sleep(Duration::from_millis(millis));
    switch(false);
}
