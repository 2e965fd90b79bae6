//! `leasehold break`: revokes the hold of another process.

use std::io::{self, Write};

use anyhow::Result;
use leasehold::{ClaimProcess, CrashRelease, Entry, Locks, Token};

use crate::commands::{InspectedStore, in_this_format};
use crate::exit::{Exit, print_error};
use crate::format::{Escaped, processes};
use crate::show::block;

pub(crate) async fn break_hold(store: &InspectedStore, name: &str, token: Token) -> Result<Exit> {
    let opened = store.open_all().await?;
    if let [only] = &opened[..] {
        return match only.locks.break_hold(name, token).await? {
            Some(broken) => report(&only.locks, name, token, &broken),
            None => report_no_such_hold(&only.locks, name, token).await,
        };
    }

    for inspected in &opened {
        let broken = in_this_format(inspected.locks.break_hold(name, token).await)?;
        if let Some(Some(broken)) = broken {
            return report(&inspected.locks, name, token, &broken);
        }
    }
    let name = Escaped(name);
    print_error(format_args!(
        "{name} is not held with token {token} in any format"
    ));
    Ok(Exit::NO_SUCH_HOLD)
}

fn report(locks: &Locks, name: &str, token: Token, broken: &Entry) -> Result<Exit> {
    let name = Escaped(name);
    let holder = broken.info.to_string();
    let mut out = io::stdout().lock();
    writeln!(out, "broke the hold of {name} with token {token}: {holder}")?;

    let guarantees = locks.guarantees();
    if guarantees.crash_release == CrashRelease::Immediate && !guarantees.lease_expiry {
        let end = match &broken.process {
            Some(ClaimProcess::Ended { held_by, .. }) => {
                format!("its {} have ended", processes(held_by))
            }
            _ => "that process releases it or ends".to_owned(),
        };
        writeln!(out, "the next waiter is granted the lock when {end}")?;
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
