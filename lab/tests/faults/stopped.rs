//! Workers stopped by SIGSTOP. The file store has no expiry: a stopped worker keeps its holds and
//! positions, and continues after SIGCONT.

use anyhow::{Result, ensure};
use lab::backends::file;
use lab::{Testbed, check};

use crate::{WORKER, queue_of, run_down};

/// How often another client tries while a process is stopped.
const TRIES: usize = 200;

#[test]
fn stopped_holder_keeps_the_lock() -> Result<()> {
    let testbed = Testbed::new(WORKER)?;
    let (mut queue, mut events) = queue_of(&testbed, 2)?;
    queue[0].pause()?;
    let token = holder(&testbed)?;
    no_second_holder(&testbed)?;
    ensure!(
        holder(&testbed)? == token && token.is_some(),
        "another client holds the lock"
    );
    queue[0].resume()?;
    let mut holder = queue.remove(0);
    holder.send_signal()?;
    events.extend(holder.finish()?);
    events.extend(run_down(queue)?);
    ensure!(check::all(&events)?.len() == 3);

    file::check_clean(&testbed, &["a".to_owned()])
}

#[test]
fn stopped_waiter_keeps_its_position() -> Result<()> {
    let testbed = Testbed::new(WORKER)?;
    let (mut queue, mut events) = queue_of(&testbed, 2)?;
    queue[1].pause()?;
    let mut holder = queue.remove(0);
    holder.send_signal()?;
    events.extend(holder.finish()?);
    no_second_holder(&testbed)?;
    queue[0].resume()?;
    events.extend(run_down(queue)?);
    ensure!(check::all(&events)?.len() == 3);
    file::check_clean(&testbed, &["a".to_owned()])
}

#[test]
fn stopped_then_killed_holder_frees_the_lock() -> Result<()> {
    let testbed = Testbed::new(WORKER)?;
    let (mut queue, mut events) = queue_of(&testbed, 2)?;
    queue[0].pause()?;
    events.extend(queue.remove(0).kill()?);
    events.extend(run_down(queue)?);
    ensure!(check::all(&events)?.len() == 3);
    file::check_clean(&testbed, &["a".to_owned()])
}

fn no_second_holder(testbed: &Testbed) -> Result<()> {
    let lock = testbed.locks().mutex("a");
    for _ in 0..TRIES {
        ensure!(
            testbed.run(lock.try_acquire())?.is_none(),
            "another client acquired the lock"
        );
    }
    Ok(())
}

fn holder(testbed: &Testbed) -> Result<Option<leasehold::Token>> {
    Ok(testbed
        .inspect("a")?
        .holders()
        .next()
        .and_then(leasehold::Entry::token))
}
