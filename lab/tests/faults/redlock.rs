//! A master that has forgotten its vote, without quarantine and with it. A test in virtual time shows
//! that it does not vote for another claim in quarantine.
//!
//! Shows G-01, G-34.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::backends::redlock;
use lab::{Testbed, until};
use lab_servers::Wire;
use leasehold::{Guard, Locks};

use crate::WORKER;

const LEASE: Duration = Duration::from_secs(5);
/// A lease that does not end while a test shows that two hold.
const LONG: Duration = Duration::from_secs(60);

/// A client holds the lock by the votes of three masters, as it cannot reach the other two. Then
/// one of the three forgets.
struct Fixture {
    testbed: Testbed,
    first: Guard,
    /// Another client, which reaches all masters.
    others: Locks,
    /// From this moment on the masters' clocks have advanced by more than a client's error about
    /// them.
    clocks_on: Instant,
    _wires: Vec<Wire>,
}

fn fixture(forget: impl FnOnce(&mut Testbed)) -> Result<Fixture> {
    let settings = "longest-lease=60s&quarantine=off";
    let mut testbed = redlock::start(WORKER, settings)?;
    let wires: Vec<Wire> = testbed.servers_of::<lab_servers::Redis>()[3..]
        .iter()
        .map(|master| Wire::to(master.address()))
        .collect();
    for wire in &wires {
        wire.refuse(true);
    }

    let apart = redlock::url_with(&testbed, settings, &[(3, &wires[0]), (4, &wires[1])]);
    let opening = Instant::now();
    let holder = testbed.run(leasehold::open(&apart))?;
    let others = testbed.run(leasehold::open(&redlock::url_with(&testbed, settings, &[])))?;
    let wrong = opening.elapsed();
    let first = testbed.run(holder.mutex("a").lease(LONG).no_renewal().acquire())?;
    let votes = testbed
        .inspect("a")?
        .servers
        .iter()
        .filter(|view| view.holder.is_some())
        .count();
    ensure!(votes == 3, "it has {votes} votes");

    let clocks_on = Instant::now() + wrong;
    forget(&mut testbed);
    Ok(Fixture {
        testbed,
        first,
        others,
        clocks_on,
        _wires: wires,
    })
}

fn restart(testbed: &mut Testbed) {
    testbed.server_mut(2).restart();
}

fn empty(testbed: &mut Testbed) {
    testbed.servers_of::<lab_servers::Redis>()[2].command(&["FLUSHALL"]);
}

/// Without quarantine, the vote of a master that has forgotten makes a second holder.
#[test]
fn voting_without_quarantine_breaks_exclusion() -> Result<()> {
    for forget in [restart as fn(&mut Testbed), empty] {
        let Fixture {
            testbed,
            first,
            others,
            clocks_on,
            _wires,
        } = fixture(forget)?;
        std::thread::sleep(clocks_on.saturating_duration_since(Instant::now()));
        let second = until("another to hold", || {
            let tried = testbed.run(others.mutex("a").lease(LONG).try_acquire());
            Ok(tried.ok().and_then(Result::ok))
        })?;
        ensure!(
            first.check().is_ok() && second.check().is_ok(),
            "the first was over too early for this to show"
        );
        ensure!(
            second.token() > first.token(),
            "the clocks advanced, so the later hold has the higher token"
        );
    }

    Ok(())
}

/// The error names the masters in quarantine, and the inspection shows for how long.
#[test]
fn remaining_quarantine_is_reported() -> Result<()> {
    let mut testbed = redlock::start(WORKER, "longest-lease=5s")?;
    for at in [0, 1, 2] {
        testbed.server_mut(at).restart();
    }

    let error = testbed
        .run(testbed.locks().mutex("a").lease(LEASE).try_acquire())
        .err()
        .context("most have forgotten")?;
    ensure!(
        error.is_unavailable() && error.to_string().contains("of 5 masters vote"),
        "{error}"
    );

    let views = until("masters to be back", || {
        Ok(testbed
            .inspect("a")
            .ok()
            .map(|lock_state| lock_state.servers))
    })?;
    let reporting = |text: &str| {
        views
            .iter()
            .filter(|view| view.error.as_ref().is_some_and(|why| why.contains(text)))
            .count()
    };
    ensure!(
        reporting("counts in") + reporting("cannot") + reporting("broke") > 0,
        "{views:?}"
    );

    redlock::wait_for_quarantine(&testbed)?;
    ensure!(
        testbed
            .run(testbed.locks().mutex("a").lease(LEASE).try_acquire())?
            .is_ok()
    );

    Ok(())
}
