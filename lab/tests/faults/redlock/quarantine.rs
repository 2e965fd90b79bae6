//! A master that has forgotten whose vote it gave must not give it to another while the first may hold.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lab::{RedlockSite, until};
use lab_servers::Wire;
use leasehold::{Guard, Locks};

use crate::TAKER;

const LEASE: Duration = Duration::from_secs(5);

/// Somebody holds by the votes of three masters, as he cannot reach the others; then one of the three forgets.
struct Scene {
    site: RedlockSite,
    first: Guard,
    /// Another client, who reaches all.
    others: Locks,
    /// Until then the masters' clocks have gone on by more than clients may be wrong about them.
    clocks_on: Instant,
    _wires: Vec<Wire>,
}

fn scene(settings: &str, forget: impl FnOnce(&mut RedlockSite)) -> Result<Scene> {
    let mut site = RedlockSite::start(TAKER, settings)?;
    let wires: Vec<Wire> = site.masters[3..].iter().map(|master| Wire::to(master.address())).collect();
    for wire in &wires {
        wire.refuse(true);
    }
    let apart = site.url_with(settings, &[(3, &wires[0]), (4, &wires[1])]);
    let opening = Instant::now();
    let holder = site.run(leasehold::open(&apart))?;
    let others = site.run(leasehold::open(&site.url_with(settings, &[])))?;
    let wrong = opening.elapsed();
    let first = site.run(holder.mutex("a").lease(LEASE).fixed().acquire())?;
    let votes = site.look("a")?.views.iter().filter(|view| view.holder.is_some()).count();
    ensure!(votes == 3, "it has {votes} votes");
    let clocks_on = Instant::now() + wrong;
    forget(&mut site);
    Ok(Scene { site, first, others, clocks_on, _wires: wires })
}

fn restart(site: &mut RedlockSite) {
    site.masters[2].restart();
}

fn empty(site: &mut RedlockSite) {
    site.masters[2].command(&["FLUSHALL"]);
}

#[test]
fn restarted_it_does_not_give_its_vote_away() -> Result<()> {
    waits(restart)
}

#[test]
fn emptied_it_does_not_give_its_vote_away() -> Result<()> {
    waits(empty)
}

fn waits(forget: impl FnOnce(&mut RedlockSite)) -> Result<()> {
    let Scene { site, first, others, _wires, .. } = scene("longest-lease=5s", forget)?;
    let lock = others.mutex("a").lease(LEASE);
    let second = loop {
        match site.run(lock.try_acquire()) {
            Ok(Some(guard)) => break guard,
            // Nobody can say who has it.
            Err(error) if !error.is_unavailable() => bail!(error),
            Ok(None) | Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    ensure!(first.check().is_err(), "two hold at once");
    ensure!(second.token() > first.token(), "{} after {}", second.token(), first.token());
    Ok(site.run(second.release())?)
}

/// The same with masters that are believed whatever they have forgotten: this is what quarantine is for.
#[test]
fn believed_too_early_two_hold() -> Result<()> {
    for forget in [restart as fn(&mut RedlockSite), empty] {
        let Scene { site, first, others, clocks_on, _wires } = scene("longest-lease=5s&quarantine=off", forget)?;
        std::thread::sleep(clocks_on.saturating_duration_since(Instant::now()));
        let second = until("another to hold", || {
            let asked = site.run(others.mutex("a").lease(LEASE).try_acquire());
            Ok(asked.ok().flatten())
        })?;
        ensure!(first.check().is_ok() && second.check().is_ok(), "the first was over too early for this to show");
        ensure!(second.token() > first.token(), "clocks went on, so tokens still tell who came later");
    }
    Ok(())
}

/// Who asks is told which masters are not believed, and `show` says for how long.
#[test]
fn it_is_said_how_long_it_takes() -> Result<()> {
    let mut site = RedlockSite::start(TAKER, "longest-lease=5s")?;
    for at in [0, 1, 2] {
        site.masters[at].restart();
    }
    let error = site.run(site.locks().mutex("a").lease(LEASE).try_acquire()).err().context("most have forgotten")?;
    ensure!(error.is_unavailable() && error.to_string().contains("of 5 masters vote"), "{error}");
    let views = until("masters to be back", || Ok(site.look("a").ok().map(|line| line.views)))?;
    let said =
        |text: &str| views.iter().filter(|view| view.trouble.as_ref().is_some_and(|why| why.contains(text))).count();
    ensure!(said("counts in") + said("cannot") + said("broke") > 0, "{views:?}");
    site.wait_until_believed()?;
    ensure!(site.run(site.locks().mutex("a").lease(LEASE).try_acquire())?.is_some());
    Ok(())
}
