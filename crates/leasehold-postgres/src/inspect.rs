//! The state of a lock, for people.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::claims::uuid_of;
use super::function::Function;
use super::pins;
use super::reply_error::{column, has_done, not_understood};
use super::session::Session;
use super::steps::{name_of, stored, stored_text};
use leasehold_core::internal::SeenHold;
use leasehold_core::store::{
    Claim, Standing, claim_id_from_bytes, parse_words, replies, share_from_parts, write_words,
};
use leasehold_core::{EndedHold, Entry, Error, LockState, Name, Result, Token};

/// Parses a claim as `record_of` in enter.sql writes it.
pub(super) fn parse_record(text: &str, ahead: u32) -> Option<Entry> {
    let mut words = text.split(' ');
    let id: Uuid = words.next()?.parse().ok()?;
    let weight = words.next()?.parse().ok()?;
    let capacity = words.next()?.parse().ok()?;
    let token = Token::new(words.next()?.parse().ok()?);
    let _lease = words.next()?;
    let reserved = words.next()?.parse().ok()?;

    let share = share_from_parts(weight, capacity).ok()?;
    let standing = token.map_or(Standing::Queued { ahead }, |token| Standing::Held { token });
    let id = claim_id_from_bytes(id.into_bytes());
    let mut entry = replies::entry(id, share, standing, parse_words(&mut words)?);
    entry.reserved = reserved;
    Some(entry)
}

pub(super) async fn inspect(session: &Session, name: &Name) -> Result<LockState> {
    let function = &session.functions.inspect;
    let rows = session.call(function, &[&stored(name)]).await?;

    let mut lock_state = replies::lock_state(name.clone());
    let mut is_pinned = false;
    for (ahead, row) in (0..).zip(&rows) {
        let last_token: Option<i64> = column(row, "last_token")?;
        lock_state.last_token = last_token
            .and_then(|token| u64::try_from(token).ok())
            .and_then(Token::new);
        let last_end: Option<&str> = column(row, "last_end")?;
        lock_state.ended = last_end.and_then(parse_ended_hold);
        let Some(text) = column(row, "record")? else {
            continue;
        };
        let mut entry = parse_record(text, ahead)
            .ok_or_else(|| Error::damaged("PostgreSQL: a record cannot be understood"))?;
        let left: i32 = column(row, "remaining")?;
        entry.lease_left = Some(Duration::from_millis(u64::try_from(left).unwrap_or(0)));
        let session: i8 = column(row, "session")?;
        entry.connected = match u8::try_from(session) {
            Ok(b'+') => Some(true),
            Ok(b'-') => Some(false),
            _ => None,
        };
        is_pinned |= column::<Option<i32>>(row, "pinned_by")?.is_some();
        lock_state.entries.push(entry);
    }
    if is_pinned {
        pins::read(session, &mut lock_state).await?;
    }
    Ok(lock_state)
}

/// Parses how a hold has ended, as `inspect_1` writes it.
fn parse_ended_hold(text: &str) -> Option<EndedHold> {
    let mut words = text.splitn(4, ' ');
    let token = Token::new(words.next()?.parse().ok()?)?;
    let reason = words.next()?;
    let followed_by = Token::new(words.next()?.parse().ok()?)?;
    let reason = replies::end_reason(reason, words.next().unwrap_or_default())?;
    Some(replies::ended_hold(token, reason, followed_by))
}

/// Calls a function that lists names.
pub(super) async fn list(
    session: &Session,
    function: &Function,
    prefix: &str,
    count_max: usize,
) -> Result<Vec<Name>> {
    let count_max = i32::try_from(count_max).unwrap_or(i32::MAX);
    let prefix = stored_text(prefix);
    let rows = session.call(function, &[&prefix, &count_max]).await?;
    let stored = rows.iter().map(|row| column(row, 0));
    let stored: Vec<&str> = stored.collect::<Result<_>>()?;
    let mut names: Vec<Name> = stored.into_iter().filter_map(name_of).collect();
    names.sort_unstable();
    Ok(names)
}

/// Returns the holds that are bound to the sessions of their clients.
pub(super) async fn bound_holds(session: &Session, name: &Name) -> Result<Vec<SeenHold>> {
    let function = &session.functions.bound_holds;
    let rows = session.call(function, &[&stored(name)]).await?;
    rows.iter().map(seen_hold).collect()
}

fn seen_hold(row: &Row) -> Result<SeenHold> {
    let claim: Uuid = column(row, "claim")?;
    let token: i64 = column(row, "token")?;
    let token = u64::try_from(token).ok().and_then(Token::new);
    let client: Uuid = column(row, "client")?;
    Ok(SeenHold {
        claim: claim_id_from_bytes(claim.into_bytes()),
        token: token.ok_or_else(not_understood)?,
        client: client.to_string(),
        link: column(row, "link")?,
    })
}

/// Revokes a hold whose process has ended, as the client of a claim knows; returns whether it did.
pub(super) async fn revoke_ended(
    session: &Session,
    seen: &SeenHold,
    seen_by: &Claim,
) -> Result<bool> {
    let stored = stored(&seen_by.name);
    let mut words = String::new();
    write_words(&seen_by.info, &mut words);
    let words = words.trim_start();
    let claim = uuid_of(seen.claim);
    let token = i64::try_from(seen.token.get()).unwrap_or(i64::MAX);
    let arguments: [&(dyn ToSql + Sync); 5] = [&stored, &claim, &token, &seen.link, &words];
    let function = &session.functions.revoke_ended;
    let rows = session.call(function, &arguments).await?;
    has_done(&rows)
}
