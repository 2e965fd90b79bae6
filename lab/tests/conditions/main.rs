//! That the machinery behind docs/four-conditions.md sees what it is there to see: locks that are known to be broken are found
//! broken, and ours are not. `cargo xtask four-conditions` has all of it.
#![forbid(unsafe_code)]

use std::path::Path;

use anyhow::{Result, ensure};
use lab::baselines::{Contender, Request};
use lab::conditions::{BaselineTestbed, cases};

const BASELINE: &str = env!("CARGO_BIN_EXE_baseline");

fn testbed(contender: Contender) -> Result<BaselineTestbed> {
    BaselineTestbed::start(Path::new(BASELINE), contender)
}

/// A lock that is not told when its holder may be given up is never free again.
#[test]
fn setnx_crash_locks_forever() -> Result<()> {
    locks_for_ever(Contender::Setnx, Request::Acquire(1_000))
}

#[test]
fn setnx_expire_crash_between_requests_locks_forever() -> Result<()> {
    locks_for_ever(Contender::SetnxExpire, Request::Begin)
}

fn locks_for_ever(contender: Contender, step: Request) -> Result<()> {
    let crash = cases::crash(&testbed(contender)?, step)?;
    ensure!(crash.next_millis.is_none(), "{crash:?}");
    Ok(())
}

#[test]
fn unconditional_del_releases_the_lock_of_another_client() -> Result<()> {
    let testbed = testbed(Contender::SetDel)?;
    ensure!(cases::refused_frees(&testbed)?);
    let (paused, late_freed) = cases::pause(&testbed)?;
    ensure!(late_freed == Some(true), "{late_freed:?}");
    ensure!(
        paused.next_held && paused.both_claimed && paused.lost.unfenced == 1,
        "{paused:?}"
    );
    ensure!(paused.lost.fenced.is_none(), "it has no token to show");
    Ok(())
}

/// The lock of the articles as leasehold has it: nobody takes it from another, a holder that was stopped hears that it is lost, and
/// what it writes all the same is refused where the resource goes by tokens, and lost where it does not.
#[test]
fn leasehold_release_is_owner_only_and_tokens_refuse_late_writes() -> Result<()> {
    let testbed = testbed(Contender::LeaseholdPlain)?;
    ensure!(!cases::refused_frees(&testbed)?);
    let (paused, late_freed) = cases::pause(&testbed)?;
    ensure!(late_freed == Some(false), "{late_freed:?}");
    ensure!(paused.next_held && !paused.both_claimed, "{paused:?}");
    ensure!(
        (paused.lost.unfenced, paused.lost.fenced) == (1, Some(0)),
        "{paused:?}"
    );
    Ok(())
}

/// On files a crash is known at once, and a few who contend lose nothing.
#[test]
fn leasehold_on_files_loses_no_update() -> Result<()> {
    let testbed = testbed(Contender::LeaseholdFile)?;
    let crash = cases::crash(&testbed, Request::Acquire(1_000))?;
    ensure!(crash.next_millis.is_some(), "{crash:?}");
    let crowd = cases::crowd(&testbed, 4)?;
    ensure!(
        (
            crowd.held,
            crowd.overlaps,
            crowd.lost.unfenced,
            crowd.lost.fenced
        ) == (4, 0, 0, Some(0)),
        "{crowd:?}"
    );
    Ok(())
}
