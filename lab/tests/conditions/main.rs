//! The machinery behind docs/four-conditions.md detects the violations that it exists for. It finds
//! that the locks known to be broken are broken, and that leasehold's locks are not. `cargo xtask
//! four-conditions` runs all of it.
#![forbid(unsafe_code)]

use std::path::Path;

use anyhow::{Context, Result, ensure};
use lab::baselines::{Request, contender_named};
use lab::conditions::BaselineTestbed;
use lab::conditions::cases::{self, Crash, Lost};

const BASELINE: &str = env!("CARGO_BIN_EXE_baseline");

fn testbed(contender: &str) -> Result<BaselineTestbed> {
    BaselineTestbed::start(Path::new(BASELINE), contender_named(contender)?)
}

/// A lock without an expiry is never free again after its holder has crashed.
#[test]
fn setnx_crash_locks_forever() -> Result<()> {
    crash_locks_forever("setnx", Request::Acquire(1_000))
}

#[test]
fn setnx_expire_crash_between_requests_locks_forever() -> Result<()> {
    crash_locks_forever("setnx-expire", Request::Begin)
}

fn crash_locks_forever(contender: &str, step: Request) -> Result<()> {
    let crash = cases::crash(&testbed(contender)?, step)?;
    ensure!(crash == Crash::Never, "{crash:?}");
    Ok(())
}

#[test]
fn unconditional_del_releases_the_lock_of_another_client() -> Result<()> {
    let testbed = testbed("set-nx-px")?;
    ensure!(cases::refused_frees(&testbed)?);
    let paused = cases::pause(&testbed)?.context("the next client held")?;
    ensure!(
        paused.late_freed && paused.both_claimed && paused.lost.unfenced == 1,
        "{paused:?}"
    );
    ensure!(paused.lost.fenced.is_none(), "the baseline has no token");
    Ok(())
}

/// The library itself, in a Java program: a paused holder is not notified of its loss, and its late
/// release does not free the lock of the next holder.
#[test]
fn paused_redisson_continues_while_the_next_client_holds() -> Result<()> {
    let testbed = testbed("redisson")?;
    ensure!(!cases::refused_frees(&testbed)?);
    let paused = cases::pause(&testbed)?.context("the next client held")?;
    ensure!(!paused.late_freed && paused.both_claimed, "{paused:?}");
    ensure!(paused.lost.unfenced == 1, "{paused:?}");

    let crash = cases::crash(&testbed, Request::Acquire(1_000))?;
    ensure!(matches!(crash, Crash::NextAfter(_)), "{crash:?}");
    Ok(())
}

/// The lock of the articles in leasehold's version: another client never takes the lock from its
/// holder. A holder that was stopped finds that its lock is lost. A resource that checks tokens
/// rejects the holder's late write. Other resources lose it.
#[test]
fn leasehold_release_is_owner_only_and_tokens_refuse_late_writes() -> Result<()> {
    let testbed = testbed("redis-plain")?;
    ensure!(!cases::refused_frees(&testbed)?);
    let paused = cases::pause(&testbed)?.context("the next client held")?;
    ensure!(!paused.both_claimed, "{paused:?}");
    ensure!(!paused.late_freed, "{paused:?}");
    let lost = Lost {
        unfenced: 1,
        fenced: Some(0),
    };
    ensure!(paused.lost == lost, "{paused:?}");
    Ok(())
}

/// The file store detects a crash at once, and a few contending clients lose no updates.
#[test]
fn leasehold_on_files_loses_no_update() -> Result<()> {
    let testbed = testbed("file")?;
    let crash = cases::crash(&testbed, Request::Acquire(1_000))?;
    ensure!(matches!(crash, Crash::NextAfter(_)), "{crash:?}");

    let crowd = cases::crowd(&testbed, 4)?;
    ensure!((crowd.held, crowd.overlaps) == (4, 0), "{crowd:?}");
    let lost = Lost {
        unfenced: 0,
        fenced: Some(0),
    };
    ensure!(crowd.lost == lost, "{crowd:?}");

    Ok(())
}
