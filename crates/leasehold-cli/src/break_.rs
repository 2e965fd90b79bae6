//! `leasehold break`: end a hold that is not one's own.

use std::io::{self, Write};

use anyhow::Result;
use leasehold::{CrashDetection, Entry, Locks, Token};

use crate::commands::Store;
use crate::exit::{Exit, print_error};
use crate::format::{Escaped, claimant};
use crate::show::block;

pub(crate) async fn break_hold(store: &Store, name: &str, token: Token) -> Result<Exit> {
    let locks = store.open().await?;
    match locks.break_hold(name, token).await? {
        Some(broken) => report(&locks, name, token, &broken),
        None => report_no_such_hold(&locks, name, token).await,
    }
}

fn report(locks: &Locks, name: &str, token: Token, broken: &Entry) -> Result<Exit> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "broke the hold of {} with token {token}: {}",
        Escaped(name),
        claimant(&broken.info)
    )?;
    if locks.guarantees().crash == CrashDetection::Immediate && !locks.guarantees().lease_expiry {
        writeln!(
            out,
            "the lock is free for the next when that process lets go of it or ends"
        )?;
    }
    Ok(Exit::DONE)
}

async fn report_no_such_hold(locks: &Locks, name: &str, token: Token) -> Result<Exit> {
    let lock_state = locks.inspect(name).await?;
    print_error(format_args!(
        "nobody holds {} with token {token}; it stands so:\n{}",
        Escaped(name),
        block(&lock_state).trim_end()
    ));
    Ok(Exit::NO_SUCH_HOLD)
}
