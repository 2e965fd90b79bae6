//! Many cycles, and nothing left of them. `LAB_CYCLES` says how many; `cargo xtask soak` runs a million.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab::{Api, DEADLINE, Orders, RedisSite, Site, check};
use lab_servers::Redis;

use crate::TAKER;

const PROCESSES: u64 = 8;
const CYCLES: u64 = 100_000;
/// Each is a round trip or two.
const CYCLES_ON_REDIS: u64 = 20_000;
/// How long one cycle may take on average, on a machine that has much else to do.
const PATIENCE_EACH: Duration = Duration::from_millis(5);

#[test]
fn soak_on_one_name() -> Result<()> {
    soak(&["a"])
}

#[test]
fn soak_on_three_names() -> Result<()> {
    soak(&["a", "b", "c"])
}

#[test]
fn soak_on_redis() -> Result<()> {
    let site = RedisSite::start(TAKER, Redis::setup(), "crash-grace=2s")?;
    let orders = soak_at(&site, CYCLES_ON_REDIS, &["a", "b", "c"])?;
    site.check_clean(&Orders { cycles: 1, ..orders })
}

fn soak(names: &[&str]) -> Result<()> {
    let site = Site::new(TAKER)?;
    let orders = soak_at(&site, CYCLES, names)?;
    site.check_clean(&orders.names)
}

fn soak_at(site: &Site, cycles: u64, names: &[&str]) -> Result<Orders> {
    let cycles = std::env::var("LAB_CYCLES").map_or(Ok(cycles), |cycles| cycles.parse())?;
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let begun = Instant::now();
    let orders = Orders { names: names.clone(), cycles: cycles / PROCESSES, ..Orders::default() };
    let takers = (0..PROCESSES).map(|number| site.start_quiet(Orders { api: api(number), ..orders.clone() }));
    let takers = takers.collect::<Result<Vec<_>>>()?;
    let mut events = Vec::new();
    for taker in takers {
        let told = taker.finish_within(DEADLINE + PATIENCE_EACH * u32::try_from(cycles)?)?;
        check::uses(&told)?;
        events.extend(told);
    }
    let took = begun.elapsed();
    let holds = check::all(&events)?;
    ensure!(holds.len() as u64 == orders.cycles * PROCESSES, "{} holds", holds.len());
    println!("{} acquisitions by {PROCESSES} processes of {} names in {took:.1?}", holds.len(), names.len());
    Ok(orders)
}

fn api(number: u64) -> Api {
    if number.is_multiple_of(2) { Api::Async } else { Api::Blocking }
}
