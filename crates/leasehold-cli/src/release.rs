//! `leasehold release`: ends a hold of `leasehold acquire` or `leasehold hold`.

use anyhow::Result;
use leasehold::{ClaimId, Locks, Token};

use crate::commands::Release;
use crate::exit::{Exit, print_error};
use crate::format::Escaped;
use crate::hold::control::{self, Outcome};

pub(crate) async fn release(args: &Release) -> Result<Exit> {
    let locks = args.store.open().await?;

    let claim = claim_of(&locks, &args.name, args.token).await?;
    let outcome = match claim {
        None => None,
        Some(claim) => control::request_release(claim, args.token).await?,
    };

    let (exit, reason) = match outcome {
        Some(Outcome::Released) => return Ok(Exit::DONE),
        Some(Outcome::Lost) => (Exit::NO_SUCH_HOLD, "the lock was lost"),
        Some(Outcome::Unconfirmed) => (
            Exit::UNAVAILABLE,
            "the holder or the store has not confirmed it",
        ),
        None if claim.is_none() => (Exit::NO_SUCH_HOLD, "no claim holds it with this token"),
        None => (
            Exit::NO_SUCH_HOLD,
            "no process of this user listens here; see leasehold show",
        ),
    };
    let name = Escaped(&args.name);
    let token = args.token;
    print_error(format_args!(
        "cannot release {name} with token {token}: {reason}"
    ));
    Ok(exit)
}

/// Returns the claim that holds the lock with this token, as the store's reply reports it.
/// No other source is trusted.
async fn claim_of(locks: &Locks, name: &str, token: Token) -> Result<Option<ClaimId>> {
    let lock_state = locks.inspect(name).await?;
    let mut holders = lock_state.holders();
    let holder = holders.find(|entry| entry.token() == Some(token));
    Ok(holder.map(|entry| entry.id))
}
