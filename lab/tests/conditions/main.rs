//! That the machinery behind docs/four-conditions.md sees what it is there to see: locks that are known to be broken are found
//! broken, and ours are not. `cargo xtask four-conditions` has all of it.
#![forbid(unsafe_code)]

use std::path::Path;

use anyhow::{Result, ensure};
use lab::conditions::{Ground, cases};
use lab::specimens::{Kind, Order};

const SPECIMEN: &str = env!("CARGO_BIN_EXE_specimen");

fn ground(kind: Kind) -> Result<Ground> {
    Ground::start(Path::new(SPECIMEN), kind)
}

/// A lock that is not told when its holder may be given up is never free again.
#[test]
fn without_an_end_a_crash_locks_for_ever() -> Result<()> {
    locks_for_ever(Kind::Setnx, Order::Acquire(1_000))
}

#[test]
fn between_two_requests_a_crash_locks_for_ever() -> Result<()> {
    locks_for_ever(Kind::SetnxExpire, Order::Begin)
}

fn locks_for_ever(kind: Kind, step: Order) -> Result<()> {
    let crash = cases::crash(&ground(kind)?, step)?;
    ensure!(crash.next_millis.is_none(), "{crash:?}");
    Ok(())
}

#[test]
fn a_plain_del_takes_the_lock_from_whoever_has_it() -> Result<()> {
    let ground = ground(Kind::SetDel)?;
    ensure!(cases::refused_frees(&ground)?);
    let (paused, late_freed) = cases::pause(&ground)?;
    ensure!(late_freed == Some(true), "{late_freed:?}");
    ensure!(paused.next_held && paused.both_said_so && paused.lost.unfenced == 1, "{paused:?}");
    ensure!(paused.lost.fenced.is_none(), "it has no token to show");
    Ok(())
}

/// The lock of the articles as leasehold has it: nobody takes it from another, a holder that was stopped hears that it is lost, and
/// what it writes all the same is refused where the resource goes by tokens, and lost where it does not.
#[test]
fn ours_is_the_owners_and_its_token_keeps_late_writers_out() -> Result<()> {
    let ground = ground(Kind::OursPlain)?;
    ensure!(!cases::refused_frees(&ground)?);
    let (paused, late_freed) = cases::pause(&ground)?;
    ensure!(late_freed == Some(false), "{late_freed:?}");
    ensure!(paused.next_held && !paused.both_said_so, "{paused:?}");
    ensure!((paused.lost.unfenced, paused.lost.fenced) == (1, Some(0)), "{paused:?}");
    Ok(())
}

/// On files a crash is known at once, and a few who contend lose nothing.
#[test]
fn ours_on_files_loses_nothing() -> Result<()> {
    let ground = ground(Kind::OursFile)?;
    let crash = cases::crash(&ground, Order::Acquire(1_000))?;
    ensure!(crash.next_millis.is_some(), "{crash:?}");
    let crowd = cases::crowd(&ground, 4)?;
    ensure!((crowd.held, crowd.overlaps, crowd.lost.unfenced, crowd.lost.fenced) == (4, 0, 0, Some(0)), "{crowd:?}");
    Ok(())
}
