//! Without a majority of masters no claim is granted, and each client receives an error in time.
//!
//! Shows G-32, G-33, G-34, L8.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::backends::redlock;
use lab::{DEADLINE, Testbed};
use leasehold::LossReason;

use crate::WORKER;

const SETTINGS: &str = "longest-lease=2s&quarantine=off";
const CLASSIC: &str = "dialect=classic";

#[test]
fn killed_majority_is_reported_within_the_deadline() -> Result<()> {
    events_text(|testbed, at| testbed.server_mut(at).kill())
}

/// The kernel still accepts requests, and the servers send no reply.
#[test]
fn paused_majority_is_reported_within_the_deadline() -> Result<()> {
    events_text(|testbed, at| testbed.redis()[at].pause())
}

#[test]
fn partitioned_majority_is_reported_within_the_deadline() -> Result<()> {
    events_text(|testbed, at| {
        testbed.wires[at].refuse(true);
        testbed.wires[at].partition();
    })
}

fn events_text(fault: impl Fn(&mut Testbed, usize)) -> Result<()> {
    const WAIT: Duration = Duration::from_secs(5);
    let mut testbed = redlock::start(WORKER, SETTINGS)?;
    let held = testbed.run(
        testbed
            .locks()
            .mutex("held")
            .lease(Duration::from_secs(2))
            .acquire(),
    )?;
    for at in [0, 2, 3] {
        fault(&mut testbed, at);
    }

    let sent_at = Instant::now();
    let refused = testbed.run(
        testbed
            .locks()
            .mutex("a")
            .lease(Duration::from_secs(2))
            .try_acquire_for(WAIT),
    );
    let error = refused.err().context("a minority has granted it")?;
    ensure!(
        error.is_unavailable() && error.to_string().contains("of 5 masters vote"),
        "{error}"
    );
    // The guaranteed deadline, with the delay of a busy machine.
    ensure!(sent_at.elapsed() < WAIT * 3, "{:?}", sent_at.elapsed());
    // The holder is notified in time of the end of its hold.
    ensure!(testbed.run(held.lost()) == LossReason::RenewalTimedOut);

    testbed.run(leasehold::drain());
    for at in [1, 4] {
        lab::until("the minority to have nothing held", || {
            let state = testbed.redis()[at].command(&["GET", "leasehold:redlock:{a}"]);
            Ok((state.is_nil() || state.text().as_bytes()[19] == b'~').then_some(()))
        })?;
    }

    Ok(())
}

/// A round does not wait for a silent master.
#[test]
fn paused_minority_does_not_slow_acquires() -> Result<()> {
    let testbed = redlock::start(WORKER, SETTINGS)?;
    let pair = || {
        testbed.run(async {
            testbed
                .locks()
                .mutex("a")
                .lease(Duration::from_secs(2))
                .acquire()
                .await?
                .release()
                .await
        })
    };
    for at in [1, 4] {
        testbed.redis()[at].pause();
    }

    let begun = Instant::now();
    for _ in 0..50 {
        pair()?;
    }

    // Waiting for either would take a tenth of a second at least, each time.
    ensure!(
        begun.elapsed() < Duration::from_secs(4),
        "{:?}",
        begun.elapsed()
    );

    Ok(())
}

/// A master that was away votes at the next renewal, so that a hold keeps its votes while masters
/// fail and return.
#[test]
fn returning_master_votes_again_at_the_next_renewal() -> Result<()> {
    let kill = |testbed: &mut Testbed, at: usize| testbed.server_mut(at).kill();
    is_given_again(
        SETTINGS,
        kill,
        |testbed, at| testbed.server_mut(at).restart(),
        |_, _| {},
    )
}

/// The same in a format in which a master remembers no token.
#[test]
fn restarted_master_gets_its_key_again() -> Result<()> {
    is_given_again(
        CLASSIC,
        |_, _| {},
        |_, _| {},
        |testbed, at| testbed.server_mut(at).restart(),
    )
}

#[test]
fn emptied_master_gets_its_key_again() -> Result<()> {
    is_given_again(
        CLASSIC,
        |_, _| {},
        |_, _| {},
        |testbed, at| drop(testbed.redis()[at].command(&["FLUSHALL"])),
    )
}

/// Injects faults into two masters before the grant, after it, and during the hold. Then two other
/// masters are killed.
fn is_given_again(
    settings: &str,
    before: impl Fn(&mut Testbed, usize),
    after: impl Fn(&mut Testbed, usize),
    held: impl Fn(&mut Testbed, usize),
) -> Result<()> {
    let mut testbed = redlock::start(WORKER, settings)?;
    for at in [3, 4] {
        before(&mut testbed, at);
    }

    let guard = testbed.run(
        testbed
            .locks()
            .mutex("a")
            .lease(Duration::from_secs(2))
            .acquire(),
    )?;
    for at in [3, 4] {
        after(&mut testbed, at);
    }

    for at in [3, 4] {
        held(&mut testbed, at);
        // One after another: a majority must remember the hold at all times.
        wait_for_all(&testbed)?;
    }

    wait_for_all(&testbed)?;
    for at in [0, 1] {
        testbed.server_mut(at).kill();
    }

    // More than a lease later the claim still holds the lock, by the restored votes.
    let lost =
        testbed.run(async { tokio::time::timeout(Duration::from_secs(5), guard.lost()).await });
    ensure!(lost.is_err(), "{lost:?}");

    Ok(testbed.run(guard.release())?)
}

/// Between the loss of a majority and the next renewal another claim may have held the lock. So the
/// hold is lost, and its votes are not restored.
#[test]
fn hold_forgotten_by_majority_is_lost() -> Result<()> {
    let testbed = redlock::start(WORKER, CLASSIC)?;
    let held = testbed.run(
        testbed
            .locks()
            .mutex("a")
            .lease(Duration::from_secs(3))
            .acquire(),
    )?;
    wait_for_all(&testbed)?;

    for at in [0, 2, 4] {
        testbed.redis()[at].command(&["FLUSHALL"]);
    }

    let lost = testbed.run(async { tokio::time::timeout(DEADLINE, held.lost()).await });
    ensure!(lost == Ok(LossReason::Revoked), "{lost:?}");
    lab::until("nothing to be left", || {
        let left = testbed
            .redis()
            .iter()
            .any(|master| !master.command(&["GET", "a"]).is_nil());
        Ok((!left).then_some(()))
    })?;
    drop(held);
    // The next client finds the lock free.
    ensure!(
        testbed
            .run(testbed.locks().mutex("a").try_acquire())?
            .is_some()
    );

    Ok(())
}

/// A renewal leaves the key of another client alone, and that master's vote is lost.
#[test]
fn key_of_another_client_is_not_overwritten() -> Result<()> {
    let testbed = redlock::start(WORKER, CLASSIC)?;
    let held = testbed.run(
        testbed
            .locks()
            .mutex("a")
            .lease(Duration::from_secs(1))
            .acquire(),
    )?;
    testbed.redis()[1].command(&["SET", "a", "theirs"]);

    let lost =
        testbed.run(async { tokio::time::timeout(Duration::from_secs(3), held.lost()).await });
    ensure!(
        lost.is_err() && testbed.redis()[1].command(&["GET", "a"]).text() == "theirs",
        "{lost:?}"
    );

    testbed.run(held.release())?;
    ensure!(testbed.redis()[1].command(&["GET", "a"]).text() == "theirs");
    Ok(())
}

/// A broken hold is not restored on any master, also if the masters receive the request at
/// different times.
#[test]
fn broken_hold_is_not_granted_again() -> Result<()> {
    let testbed = redlock::start(WORKER, CLASSIC)?;
    for wire in &testbed.wires[2..] {
        wire.delay(Duration::from_millis(20));
    }

    let apart = testbed.run(leasehold::open(&redlock::url_with(&testbed, CLASSIC, &[])))?;
    for _ in 0..10 {
        let held = testbed.run(
            testbed
                .locks()
                .mutex("a")
                .lease(Duration::from_secs(5))
                .acquire(),
        )?;
        wait_for_all(&testbed)?;
        ensure!(testbed.run(apart.break_hold("a", held.token()))?.is_some());
        ensure!(testbed.run(held.lost()) == LossReason::Revoked);
        drop(held);
        testbed.run(leasehold::drain());
    }

    Ok(())
}

fn wait_for_all(testbed: &Testbed) -> Result<()> {
    lab::until("all to have granted it", || {
        let views = testbed
            .inspect("a")
            .map(|lock_state| lock_state.servers)
            .unwrap_or_default();
        let holders: Vec<_> = views.iter().map(|view| view.holder).collect();
        Ok((holders.len() == 5
            && holders
                .iter()
                .all(|holder| holder.is_some() && *holder == holders[0]))
        .then_some(()))
    })
}
