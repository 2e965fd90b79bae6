//! `leasehold wait`: waits until a lock is free, without entering its queue.

use std::time::Duration;

use anyhow::Result;
use leasehold::{LockState, Locks};
use tokio::time::timeout;

use crate::commands::Wait;
use crate::exit::{Exit, print_error};
use crate::format::{Escaped, whole_unit};
use crate::run::retry::Retry;
use crate::run::waiting::holder_text;
use crate::run::{nested, own_script};
use crate::show::is_free;

pub(crate) async fn wait(args: &Wait) -> Result<Exit> {
    let mut retry = Retry::within(args.limit, &args.store);
    let locks = retry.until_available(|| args.store.open()).await?;
    let name = &args.name;
    let mut last_seen = retry.until_available(|| locks.inspect(name)).await?;

    if is_free(&last_seen) {
        return Ok(Exit::DONE);
    }
    if args.limit == Some(Duration::ZERO) {
        print_timed_out(args, &locks, &last_seen);
        return Ok(args.busy.exit());
    }

    let enclosed = retry.until_available(|| nested::check_not_enclosed(&locks, name));
    enclosed.await?;
    if !args.quiet
        && let Some(advice) = own_script::advice(&last_seen)
    {
        let held = holder_text(&last_seen);
        print_error(format_args!(
            "waiting for {}: {held}; {advice}",
            Escaped(name)
        ));
    }

    let mut observer = retry.until_available(|| locks.observe(name)).await?;
    while !is_free(&last_seen) {
        let Some(changed) = within(retry.remaining(), observer.next()).await else {
            // The state that was seen last may be as old as the silence of a server.
            last_seen = locks.inspect(name).await?;
            if is_free(&last_seen) {
                break;
            }
            print_timed_out(args, &locks, &last_seen);
            return Ok(args.busy.exit());
        };
        last_seen = match changed {
            Ok(lock_state) => lock_state,
            Err(_) => retry.until_available(|| locks.inspect(name)).await?,
        };
    }
    Ok(Exit::DONE)
}

/// Returns the output of a future, or `None` if the time is over first.
async fn within<T>(limit: Option<Duration>, future: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => timeout(limit, future).await.ok(),
        None => Some(future.await),
    }
}

fn print_timed_out(args: &Wait, locks: &Locks, last_seen: &LockState) {
    if args.quiet {
        return;
    }

    let name = Escaped(&args.name);
    let held = holder_text(last_seen);
    let store = args.store.origin.describe(locks.url());
    match args.limit {
        Some(limit) if !limit.is_zero() => {
            let limit = whole_unit(limit);
            print_error(format_args!(
                "{name} was not free within {limit}: {held}; {store}"
            ));
        }
        _ => print_error(format_args!("{name} is not free: {held}; {store}")),
    }
}
