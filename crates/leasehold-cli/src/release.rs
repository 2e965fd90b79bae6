//! `leasehold release`: ends a hold of `leasehold acquire` or `leasehold hold`.

use anyhow::Result;
use leasehold::{ClaimId, Locks, Token};

use crate::commands::Release;
use crate::exit::{Exit, print_error};
use crate::format::Escaped;
use crate::hold::control::{self, Outcome};

pub(crate) async fn release(args: &Release) -> Result<Exit> {
    let locks = args.store.open().await?;

    let Some(claim) = claim_of(&locks, &args.name, args.token).await? else {
        print_no_hold(args, "no claim holds it with this token");
        return Ok(Exit::NO_SUCH_HOLD);
    };
    match control::request_release(claim, args.token).await? {
        Some(Outcome::Released) => Ok(Exit::DONE),
        Some(Outcome::Lost) => {
            print_no_hold(args, "the lock was lost");
            Ok(Exit::NO_SUCH_HOLD)
        }
        Some(Outcome::Unconfirmed) => {
            print_no_hold(args, "the holder or the store has not confirmed it");
            Ok(Exit::UNAVAILABLE)
        }
        None => {
            print_no_hold(
                args,
                "no process of this user listens here; see leasehold show",
            );
            Ok(Exit::NO_SUCH_HOLD)
        }
    }
}

/// Returns the claim that holds the lock with this token, as the store's reply reports it.
/// No other source is trusted.
async fn claim_of(locks: &Locks, name: &str, token: Token) -> Result<Option<ClaimId>> {
    let lock_state = locks.inspect(name).await?;
    let mut holders = lock_state.holders();
    let holder = holders.find(|entry| entry.token() == Some(token));
    Ok(holder.map(|entry| entry.id))
}

fn print_no_hold(args: &Release, reason: &str) {
    let name = Escaped(&args.name);
    let token = args.token;
    print_error(format_args!(
        "cannot release {name} with token {token}: {reason}"
    ));
}
