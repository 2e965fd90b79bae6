//! Those who are killed clear nothing away. What they leave ends by itself.

use anyhow::{Result, ensure};
use lab::{Face, Orders, RedisSite, Work, until};
use lab_servers::Redis;

use crate::TAKER;

const LATER_DAYS: i64 = 3;

/// On each name a kind of lock, one who holds it and one who waits.
const LINES: [(&str, Face, Face); 3] = [
    ("mutex", Face::Mutex, Face::Mutex),
    ("readers", Face::Reader, Face::Writer),
    ("slots", Face::Slots { take: 2, of: 3 }, Face::Slots { take: 3, of: 3 }),
];

#[test]
fn every_key_of_the_killed_has_an_end() -> Result<()> {
    let site = RedisSite::start(TAKER, Redis::setup().own_clock(), "crash-grace=1s")?;
    for (name, held, waited) in LINES {
        let orders = Orders { names: vec![name.to_owned()], work: Work::Watched(u64::MAX), ..Orders::default() };
        let mut holder = site.start(Orders { face: held, ..orders.clone() })?;
        holder.hear_granted()?;
        let waiter = site.start(Orders { face: waited, ..orders })?;
        site.see_waiting(name, waiter.hand())?;
        holder.kill()?;
        waiter.kill()?;
    }
    ensure!(keys(&site) >= LINES.len(), "they left nothing");
    site.redis.set_clock(LATER_DAYS * 24 * 60 * 60);
    until("all keys to have ended", || Ok((keys(&site) == 0).then_some(())))
}

fn keys(site: &RedisSite) -> usize {
    site.redis.command(&["DBSIZE"]).int().try_into().expect("a count")
}
