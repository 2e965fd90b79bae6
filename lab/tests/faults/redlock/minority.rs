//! Whatever happens to two of five, no two hold at once, tokens rise, and work goes on. `LAB_CYCLES` says how many faults, by the
//! thousand.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};
use lab::{Api, Orders, Random, RedlockSite, Trouble, What, check, until};

use crate::TAKER;

const LEASE: Duration = Duration::from_secs(1);
const SETTINGS: &str = "longest-lease=1000ms";
const PROCESSES: usize = 6;
const FAULTS: u64 = 5;
/// With fewer holds a storm shows nothing.
const HOLDS_MIN: usize = 60;

#[test]
fn killed_and_started_anew_without_data() -> Result<()> {
    storm("killed", |site, at| site.masters[at].restart(), |_, _| {})
}

#[test]
fn killed_for_a_while() -> Result<()> {
    storm("killed_for_a_while", |site, at| site.masters[at].kill(), |site, at| site.masters[at].restart())
}

#[test]
fn stopped_for_a_while() -> Result<()> {
    storm("stopped", |site, at| site.masters[at].pause(), |site, at| site.masters[at].resume())
}

#[test]
fn cut_off_for_a_while() -> Result<()> {
    let cut = |site: &mut RedlockSite, at: usize| {
        site.wires[at].refuse(true);
        site.wires[at].cut();
    };
    storm("cut_off", cut, |site, at| site.wires[at].refuse(false))
}

/// Requests arrive, and are answered in vain: who asked does not know what he was granted.
#[test]
fn mute_for_a_while() -> Result<()> {
    storm(
        "mute",
        |site, at| site.wires[at].lose_replies(true),
        |site, at| {
            site.wires[at].lose_replies(false);
            site.wires[at].cut();
        },
    )
}

/// What is under way arrives when nobody expects it any more.
#[test]
fn frozen_for_a_while() -> Result<()> {
    storm("frozen", |site, at| site.wires[at].freeze(true), |site, at| site.wires[at].freeze(false))
}

#[test]
fn emptied() -> Result<()> {
    storm("emptied", |site, at| drop(site.masters[at].command(&["FLUSHALL"])), |_, _| {})
}

fn faults() -> Result<u64> {
    Ok(std::env::var("LAB_CYCLES")
        .map_or(Ok(FAULTS), |cycles| cycles.parse().map(|cycles: u64| cycles / 1_000))?
        .max(2))
}

/// Processes take locks in turn; again and again two of the masters, never the same for long, are treated badly. The next are only
/// when these are believed again.
fn storm(test: &str, fault: impl Fn(&mut RedlockSite, usize), heal: impl Fn(&mut RedlockSite, usize)) -> Result<()> {
    let mut random = Random::announced(test);
    let mut site = RedlockSite::start(TAKER, SETTINGS)?;
    let mut crew = (0..PROCESSES).map(|number| site.start_quiet(orders(number))).collect::<Result<Vec<_>>>()?;
    let there = |site: &RedlockSite| site.masters[4].command(&["PUBSUB", "CHANNELS", "leasehold:inbox:*"]).list().len();
    until("the crew to be at work", || Ok((there(&site) > PROCESSES).then_some(())))?;
    for _ in 0..faults()? {
        let first = random.below(5);
        let two = [first, (first + 1 + random.below(4)) % 5].map(|at| usize::try_from(at).expect("one of five"));
        for at in two {
            fault(&mut site, at);
        }
        // How long the fault lasts: longer than a lease sometimes.
        sleep(LEASE.mul_f64(0.2) + Duration::from_millis(random.below(1_200)));
        for at in two {
            heal(&mut site, at);
        }
        ensure!(crew.iter_mut().all(|one| one.has_ended().is_ok_and(|ended| !ended)), "one of the crew has ended");
        site.wait_until_believed()?;
    }
    let mut told = Vec::new();
    for one in crew {
        told.extend(one.kill()?);
    }
    let holds = check::all(&told)?;
    let lost = told.iter().filter(|event| matches!(event.what, What::Gone | What::RanOut)).count();
    println!("{test}: {} holds, of which {lost} were lost", holds.len());
    ensure!(holds.len() >= HOLDS_MIN, "only {} holds", holds.len());
    check_clean(&site)
}

fn orders(number: usize) -> Orders {
    Orders {
        names: ["a", "b"].map(str::to_owned).to_vec(),
        api: if number.is_multiple_of(2) { Api::Async } else { Api::Blocking },
        cycles: u64::MAX,
        lease: Some(LEASE.as_millis().try_into().expect("a second")),
        trouble: Trouble::Endured,
        ..Orders::default()
    }
}

/// What the dead held is over with its lease, and every key ends by itself.
fn check_clean(site: &RedlockSite) -> Result<()> {
    for name in ["a", "b"] {
        site.run(async { site.locks().mutex(name).lease(LEASE).acquire().await?.release().await })?;
        ensure!(site.look(name)?.entries.is_empty());
    }
    for master in &site.masters {
        for key in master.command(&["KEYS", "*"]).texts() {
            ensure!(master.command(&["PTTL", key]).int() != -1, "{key} stays for ever");
        }
    }
    Ok(())
}
