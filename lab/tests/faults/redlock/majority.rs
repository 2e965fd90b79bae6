//! With a majority gone nobody is granted anything, and everybody is told so in time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::RedlockSite;
use leasehold::Loss;

use crate::TAKER;

const SETTINGS: &str = "longest-lease=2s&quarantine=off";

#[test]
fn gone_it_is_said_within_the_deadline() -> Result<()> {
    said(|site, at| site.masters[at].kill())
}

/// The kernel still takes what is sent, and nothing is answered.
#[test]
fn stopped_it_is_said_within_the_deadline() -> Result<()> {
    said(|site, at| site.masters[at].pause())
}

#[test]
fn cut_off_it_is_said_within_the_deadline() -> Result<()> {
    said(|site, at| {
        site.wires[at].refuse(true);
        site.wires[at].cut();
    })
}

fn said(fault: impl Fn(&mut RedlockSite, usize)) -> Result<()> {
    const WAIT: Duration = Duration::from_secs(5);
    let mut site = RedlockSite::start(TAKER, SETTINGS)?;
    let held = site.run(site.locks().mutex("held").lease(Duration::from_secs(2)).acquire())?;
    for at in [0, 2, 3] {
        fault(&mut site, at);
    }
    let asked = Instant::now();
    let refused = site.run(site.locks().mutex("a").lease(Duration::from_secs(2)).try_acquire_for(WAIT));
    let error = refused.err().context("a minority has granted it")?;
    ensure!(error.is_unavailable() && error.to_string().contains("of 5 masters vote"), "{error}");
    // As the library promises it, with what a busy machine adds.
    ensure!(asked.elapsed() < WAIT * 3, "{:?}", asked.elapsed());
    // Whoever holds hears in time that he cannot count on it.
    ensure!(site.run(held.lost()) == Loss::Unrenewed);
    site.run(site.locks().settled());
    for at in [1, 4] {
        lab::until("the minority to have nothing held", || {
            let state = site.masters[at].command(&["GET", "leasehold:redlock:{a}"]);
            Ok((state.is_nil() || state.text().as_bytes()[19] == b'~').then_some(()))
        })?;
    }
    Ok(())
}

/// One that does not answer is not waited for.
#[test]
fn a_minority_that_is_stopped_slows_nobody() -> Result<()> {
    let site = RedlockSite::start(TAKER, SETTINGS)?;
    let pair =
        || site.run(async { site.locks().mutex("a").lease(Duration::from_secs(2)).acquire().await?.release().await });
    for at in [1, 4] {
        site.masters[at].pause();
    }
    let begun = Instant::now();
    for _ in 0..50 {
        pair()?;
    }
    // Waiting for either would take a tenth of a second at least, each time.
    ensure!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    Ok(())
}

/// Votes that were given late, or by a master that was away, stand after the next renewal: a hold does not wear off.
#[test]
fn a_master_that_comes_back_is_given_its_vote() -> Result<()> {
    let mut site = RedlockSite::start(TAKER, SETTINGS)?;
    for at in [3, 4] {
        site.masters[at].kill();
    }
    let held = site.run(site.locks().mutex("a").lease(Duration::from_secs(2)).acquire())?;
    for at in [3, 4] {
        site.masters[at].restart();
    }
    lab::until("all to have granted it", || {
        let views = site.look("a")?.views;
        Ok(views.iter().all(|view| view.holder.is_some_and(|(_, token)| token == held.token())).then_some(()))
    })?;
    for at in [0, 1] {
        site.masters[at].kill();
    }
    // More than a lease later it is still held, by what was repaired.
    let lost = site.run(async { tokio::time::timeout(Duration::from_secs(5), held.lost()).await });
    ensure!(lost.is_err(), "{lost:?}");
    Ok(site.run(held.release())?)
}
