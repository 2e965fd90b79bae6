//! `leasehold break`: revokes the hold of another process.

use std::io::{self, Write};

use anyhow::Result;
use leasehold::{CrashDetection, Entry, Locks, Token};

use crate::commands::InspectedStore;
use crate::exit::{Exit, print_error};
use crate::format::{Escaped, claimant};
use crate::show::block;

pub(crate) async fn break_hold(store: &InspectedStore, name: &str, token: Token) -> Result<Exit> {
    let locks = store.open().await?;
    match locks.break_hold(name, token).await? {
        Some(broken) => report(&locks, name, token, &broken),
        None => report_no_such_hold(&locks, name, token).await,
    }
}

fn report(locks: &Locks, name: &str, token: Token, broken: &Entry) -> Result<Exit> {
    let name = Escaped(name);
    let holder = claimant(&broken.info);
    let mut out = io::stdout().lock();
    writeln!(out, "broke the hold of {name} with token {token}: {holder}")?;

    let guarantees = locks.guarantees();
    if guarantees.crash == CrashDetection::Immediate && !guarantees.lease_expiry {
        writeln!(
            out,
            "the next waiter is granted the lock when that process releases it or ends"
        )?;
    }
    Ok(Exit::DONE)
}

async fn report_no_such_hold(locks: &Locks, name: &str, token: Token) -> Result<Exit> {
    let lock_state = locks.inspect(name).await?;
    print_error(format_args!(
        "{} is not held with token {token}; current state:\n{}",
        Escaped(name),
        block(&lock_state).trim_end()
    ));
    Ok(Exit::NO_SUCH_HOLD)
}
