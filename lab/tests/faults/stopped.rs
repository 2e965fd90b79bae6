//! SIGSTOP: the file store has no expiry, so whoever is stopped keeps what it has, and all goes on with SIGCONT.

use anyhow::{Result, ensure};
use lab::{Site, check};

use crate::{TAKER, line_of, run_down};

/// How often somebody else tries while a process is stopped.
const TRIES: usize = 200;

#[test]
fn a_stopped_holder_keeps_the_lock() -> Result<()> {
    let site = Site::new(TAKER)?;
    let (mut line, mut events) = line_of(&site, 2)?;
    line[0].stop()?;
    let token = holder(&site)?;
    nobody_gets_in(&site)?;
    ensure!(holder(&site)? == token && token.is_some(), "another holds");
    line[0].resume()?;
    let mut holder = line.remove(0);
    holder.tell()?;
    events.extend(holder.finish()?);
    events.extend(run_down(line)?);
    ensure!(check::all(&events)?.len() == 3);
    site.check_clean(&["a".to_owned()])
}

#[test]
fn a_stopped_waiter_keeps_its_place() -> Result<()> {
    let site = Site::new(TAKER)?;
    let (mut line, mut events) = line_of(&site, 2)?;
    line[1].stop()?;
    let mut holder = line.remove(0);
    holder.tell()?;
    events.extend(holder.finish()?);
    nobody_gets_in(&site)?;
    line[0].resume()?;
    events.extend(run_down(line)?);
    ensure!(check::all(&events)?.len() == 3);
    site.check_clean(&["a".to_owned()])
}

#[test]
fn a_stopped_holder_that_is_killed_frees_the_lock() -> Result<()> {
    let site = Site::new(TAKER)?;
    let (mut line, mut events) = line_of(&site, 2)?;
    line[0].stop()?;
    events.extend(line.remove(0).kill()?);
    events.extend(run_down(line)?);
    ensure!(check::all(&events)?.len() == 3);
    site.check_clean(&["a".to_owned()])
}

fn nobody_gets_in(site: &Site) -> Result<()> {
    let lock = site.locks().mutex("a");
    for _ in 0..TRIES {
        ensure!(site.run(lock.try_acquire())?.is_none(), "it was to be had");
    }
    Ok(())
}

fn holder(site: &Site) -> Result<Option<leasehold::Token>> {
    Ok(site.look("a")?.holders().next().and_then(leasehold::Entry::token))
}
