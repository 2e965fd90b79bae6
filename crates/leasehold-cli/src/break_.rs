//! `leasehold break`: end a hold that is not one's own.

use std::io::{self, Write};

use anyhow::Result;
use leasehold::{Crash, Entry, Locks, Token};

use crate::commands::Store;
use crate::exit::{Exit, say};
use crate::show::block;
use crate::words::{Plain, who};

pub(crate) async fn break_hold(store: &Store, name: &str, token: Token) -> Result<Exit> {
    let locks = store.open().await?;
    match locks.break_hold(name, token).await? {
        Some(broken) => report(&locks, name, token, &broken),
        None => deny(&locks, name, token).await,
    }
}

fn report(locks: &Locks, name: &str, token: Token, broken: &Entry) -> Result<Exit> {
    let mut out = io::stdout().lock();
    writeln!(out, "broke the hold of {} with token {token}: {}", Plain(name), who(&broken.note))?;
    if locks.promises().crash == Crash::AtOnce && !locks.promises().expiry {
        writeln!(out, "the lock is free for the next when that process lets go of it or ends")?;
    }
    Ok(Exit::DONE)
}

async fn deny(locks: &Locks, name: &str, token: Token) -> Result<Exit> {
    let line = locks.look(name).await?;
    say(format_args!("nobody holds {} with token {token}; it stands so:\n{}", Plain(name), block(&line).trim_end()));
    Ok(Exit::NO_SUCH_HOLD)
}
