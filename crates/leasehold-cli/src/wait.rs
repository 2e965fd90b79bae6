//! `leasehold wait`: waits until a lock is free, without entering its queue.

use std::time::Duration;

use anyhow::Result;
use leasehold::{LockState, Locks};
use tokio::time::{Instant, sleep, timeout_at};

use crate::commands::Wait;
use crate::exit::{Exit, print_error};
use crate::format::{Escaped, whole_unit};
use crate::run::waiting::holder_text;
use crate::show::is_free;

/// The first pauses between two polls. A lock that is held briefly is soon seen as free.
const POLL_MIN: Duration = Duration::from_millis(10);
/// The longest pause between two polls, which costs any store little.
const POLL_MAX: Duration = Duration::from_millis(250);

pub(crate) async fn wait(args: &Wait) -> Result<Exit> {
    let deadline = args
        .limit
        .and_then(|limit| Instant::now().checked_add(limit));
    let locks = args.store.open().await?;

    let mut last_seen = locks.inspect(&args.name).await?;
    let freed = until_free(&locks, &mut last_seen);
    let is_free = match deadline {
        Some(deadline) => timeout_at(deadline, freed).await,
        None => Ok(freed.await),
    };

    match is_free {
        Ok(result) => result.map(|()| Exit::DONE),
        Err(_elapsed) => {
            print_timed_out(args, &last_seen);
            Ok(Exit::NOT_IN_TIME)
        }
    }
}

/// Polls until the lock is free. `last_seen` is its state at the last poll.
async fn until_free(locks: &Locks, last_seen: &mut LockState) -> Result<()> {
    let mut pause = POLL_MIN;

    while !is_free(last_seen) {
        sleep(pause).await;
        pause = (pause * 2).min(POLL_MAX);
        *last_seen = locks.inspect(last_seen.name.as_str()).await?;
    }
    Ok(())
}

fn print_timed_out(args: &Wait, last_seen: &LockState) {
    if args.quiet {
        return;
    }

    let name = Escaped(&args.name);
    let held = holder_text(last_seen);
    match args.limit {
        Some(limit) if !limit.is_zero() => {
            let limit = whole_unit(limit);
            print_error(format_args!("{name} was not free within {limit}: {held}"));
        }
        _ => print_error(format_args!("{name} is not free: {held}")),
    }
}
