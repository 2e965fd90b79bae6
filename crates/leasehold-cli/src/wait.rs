//! `leasehold wait`: waits until a lock is free, without entering its queue.

use std::time::Duration;

use anyhow::Result;
use leasehold::LockState;
use tokio::time::{Instant, sleep_until};

use crate::commands::Wait;
use crate::exit::{Exit, print_error};
use crate::format::{Escaped, whole_unit};
use crate::run::retry::Retry;
use crate::run::waiting::holder_text;
use crate::show::is_free;

/// The first pause between two polls. It is short, so the release of a briefly held lock is noticed
/// soon.
const POLL_MIN: Duration = Duration::from_millis(10);
/// The longest pause between two polls. At this rate, polling is a small load for any store.
const POLL_MAX: Duration = Duration::from_millis(250);

pub(crate) async fn wait(args: &Wait) -> Result<Exit> {
    let deadline = args
        .limit
        .and_then(|limit| Instant::now().checked_add(limit));
    let mut retry = Retry::within(args.limit, &args.store);
    let locks = retry.until_available(|| args.store.open()).await?;
    let name = &args.name;
    let mut last_seen = retry.until_available(|| locks.inspect(name)).await?;

    let mut pause = POLL_MIN;
    while !is_free(&last_seen) {
        let next = Instant::now() + pause;
        pause = (pause * 2).min(POLL_MAX);

        if let Some(deadline) = deadline.filter(|deadline| *deadline < next) {
            sleep_until(deadline).await;
            print_timed_out(args, &last_seen);
            return Ok(Exit::NOT_IN_TIME);
        }
        sleep_until(next).await;
        last_seen = retry.until_available(|| locks.inspect(name)).await?;
    }
    Ok(Exit::DONE)
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
