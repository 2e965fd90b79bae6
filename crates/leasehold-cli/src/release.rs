//! `leasehold release` and `leasehold check`: end or examine a hold of `leasehold acquire` or
//! `leasehold hold`.

use anyhow::Result;
use leasehold::{Entry, Locks, Token};

use crate::commands::{Check, Release};
use crate::exit::{Exit, print_error};
use crate::format::{Escaped, is_missing};
use crate::hold::control::{self, Outcome};
use crate::hold::loss_note::LossNote;

pub(crate) async fn release(args: &Release) -> Result<Exit> {
    let locks = args.store.open().await?;

    let holder = holder_of(&locks, &args.name, args.token).await?;
    let outcome = match &holder {
        None => None,
        Some(holder) => control::request_release(holder.id).await?,
    };

    let loss = || loss_of(&locks, &args.name, args.token);
    let (exit, reason) = match outcome {
        Some(Outcome::Released) => return Ok(Exit::DONE),
        Some(Outcome::Lost) => (
            Exit::NO_SUCH_HOLD,
            loss().unwrap_or_else(|| "the lock was lost".to_owned()),
        ),
        Some(Outcome::Unconfirmed) => (
            Exit::UNAVAILABLE,
            "the holder or the store has not confirmed it".to_owned(),
        ),
        None => (
            Exit::NO_SUCH_HOLD,
            loss().unwrap_or_else(|| match holder {
                None => NO_SUCH_HOLD.to_owned(),
                Some(_) => "no process of this user listens here; see leasehold show".to_owned(),
            }),
        ),
    };
    let name = Escaped(&args.name);
    let token = args.token;
    print_error(format_args!(
        "cannot release {name} with token {token}: {reason}"
    ));
    Ok(exit)
}

pub(crate) async fn check(args: &Check) -> Result<Exit> {
    let locks = args.store.open().await?;

    let reason = match holder_of(&locks, &args.name, args.token).await? {
        Some(holder) => {
            let still_held = control::still_held(holder.id).await?;
            why_lost(&holder, still_held, loss_of(&locks, &args.name, args.token))
        }
        None => loss_of(&locks, &args.name, args.token).or_else(|| Some(NO_SUCH_HOLD.to_owned())),
    };
    let Some(reason) = reason else {
        return Ok(Exit::DONE);
    };

    let name = Escaped(&args.name);
    let token = args.token;
    print_error(format_args!(
        "{name} is not held with token {token}: {reason}"
    ));
    Ok(Exit::LOST)
}

/// Returns why a hold that the store has must not be relied on; `None` if it may be.
///
/// The store alone may be late: it keeps a hold for some time after its holder must not trust it
/// any more. So the reply of its holder counts, if one was asked and has replied, and the note of the
/// loss.
pub(crate) fn why_lost(
    holder: &Entry,
    still_held: Option<bool>,
    loss: Option<String>,
) -> Option<String> {
    let reason = match still_held {
        Some(true) => return None,
        Some(false) => Some("the holder has lost it"),
        // A holder that does not reply, such as one that was killed, may not renew any more.
        None => is_missing(holder).then_some("the connection of its holder is missing"),
    };
    loss.or_else(|| reason.map(str::to_owned))
}

const NO_SUCH_HOLD: &str = "no claim holds it with this token";

/// Returns when and why the hold was lost, if its holder has left a note.
pub(crate) fn loss_of(locks: &Locks, name: &str, token: Token) -> Option<String> {
    let note = LossNote::of(locks.url(), name, token).read()?;
    Some(format!("the lock was lost at {}", Escaped(&note)))
}

/// Returns the claim that holds the lock with this token, as the store's reply reports it.
/// No other source is trusted.
async fn holder_of(locks: &Locks, name: &str, token: Token) -> Result<Option<Entry>> {
    let lock_state = locks.inspect(name).await?;
    let mut holders = lock_state.holders();
    let holder = holders.find(|entry| entry.token() == Some(token));
    Ok(holder.cloned())
}

#[cfg(test)]
mod tests {
    use leasehold::store::{Share, Standing, claimant_here, draw_claim_id, replies};

    use super::*;

    #[test]
    fn note_of_the_loss_counts_unless_the_holder_contradicts_it() {
        let token = Token::new(1).expect("not zero");
        let info = claimant_here("").expect("a short label");
        let standing = Standing::Held { token };
        let mut holder = replies::entry(draw_claim_id(), Share::MUTEX, standing, info);
        let note = || Some("the lock was lost at noon".to_owned());

        for connected in [None, Some(true), Some(false)] {
            holder.connected = connected;
            assert_eq!(why_lost(&holder, None, note()), note(), "{connected:?}");
            assert_eq!(why_lost(&holder, Some(false), note()), note());
            assert_eq!(why_lost(&holder, Some(true), note()), None);

            let is_lost = why_lost(&holder, None, None).is_some();
            assert_eq!(is_lost, connected == Some(false));
            assert!(why_lost(&holder, Some(false), None).is_some());
        }
    }
}
