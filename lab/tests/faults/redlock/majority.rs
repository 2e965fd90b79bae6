//! Masters that fail or forget while a majority remains, and a majority that forgets.
//!
//! Shows G-32, G-33, G-34, L8.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab::backends::redlock;
use lab::{DEADLINE, Testbed};
use leasehold::{Guard, LossReason};

use crate::WORKER;

const SETTINGS: &str = "longest-lease=2s&quarantine=off";
const CLASSIC: &str = "dialect=classic";

/// A round does not wait for a silent master.
#[test]
fn paused_minority_does_not_slow_acquires() -> Result<()> {
    let testbed = redlock::start(WORKER, SETTINGS)?;
    for at in [1, 4] {
        testbed.redis()[at].pause();
    }

    let begun = Instant::now();
    for _ in 0..50 {
        testbed.run(acquire(&testbed, "a", 2)?.release())?;
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
    let mut testbed = redlock::start(WORKER, SETTINGS)?;
    for at in [3, 4] {
        testbed.server_mut(at).kill();
    }
    let guard = acquire(&testbed, "a", 2)?;
    for at in [3, 4] {
        testbed.server_mut(at).restart();
    }
    survives_without_the_others(testbed, guard)
}

/// The same in a format in which a master remembers no token.
#[test]
fn restarted_master_gets_its_key_again() -> Result<()> {
    is_given_again(|testbed, at| testbed.server_mut(at).restart())
}

#[test]
fn emptied_master_gets_its_key_again() -> Result<()> {
    is_given_again(|testbed, at| drop(testbed.redis()[at].command(&["FLUSHALL"])))
}

/// Lets two masters forget a hold, one after another: a majority must remember it at all times.
fn is_given_again(forget: impl Fn(&mut Testbed, usize)) -> Result<()> {
    let mut testbed = redlock::start(WORKER, CLASSIC)?;
    let guard = acquire(&testbed, "a", 2)?;
    for at in [3, 4] {
        forget(&mut testbed, at);
        wait_for_all(&testbed)?;
    }
    survives_without_the_others(testbed, guard)
}

/// Kills two of the three masters that always had the votes. More than a lease later the claim
/// still holds the lock, by the restored votes.
fn survives_without_the_others(mut testbed: Testbed, guard: Guard) -> Result<()> {
    wait_for_all(&testbed)?;
    for at in [0, 1] {
        testbed.server_mut(at).kill();
    }

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
    let held = acquire(&testbed, "a", 3)?;
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
            .is_ok()
    );

    Ok(())
}

/// A renewal leaves the key of another client alone, and that master's vote is lost.
#[test]
fn key_of_another_client_is_not_overwritten() -> Result<()> {
    let testbed = redlock::start(WORKER, CLASSIC)?;
    let held = acquire(&testbed, "a", 1)?;
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
        let held = acquire(&testbed, "a", 5)?;
        wait_for_all(&testbed)?;
        ensure!(testbed.run(apart.break_hold("a", held.token()))?.is_some());
        ensure!(testbed.run(held.lost()) == LossReason::Revoked);
        drop(held);
        testbed.run(leasehold::drain());
    }

    Ok(())
}

fn acquire(testbed: &Testbed, name: &str, seconds: u64) -> Result<Guard> {
    let lock = testbed
        .locks()
        .mutex(name)
        .lease(Duration::from_secs(seconds));
    Ok(testbed.run(lock.acquire())?)
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
