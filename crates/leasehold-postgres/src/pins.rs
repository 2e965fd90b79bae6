//! The transactions of users that pin grants.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::reply_error::column;
use super::session::Session;
use super::steps::{millis, stored};
use leasehold_core::store::{claim_id_from_bytes, replies};
use leasehold_core::{LockState, Name, Pin, PinnedBy, Result};

/// Adds the pins to the state of a lock.
pub(super) async fn read(session: &Session, lock_state: &mut LockState) -> Result<()> {
    let stored = stored(&lock_state.name);
    for row in session.call(&session.functions.pins, &[&stored]).await? {
        let claim: Uuid = column(&row, "claim")?;
        let claim = claim_id_from_bytes(claim.into_bytes());
        let entry = lock_state
            .entries
            .iter_mut()
            .find(|entry| entry.id == claim);
        if let Some((entry, pin)) = entry.zip(pin(&row)?) {
            entry.pins.push(pin);
        }
    }
    Ok(())
}

/// Parses a pin; `None` if a prepared transaction has ended while it was read.
fn pin(row: &Row) -> Result<Option<Pin>> {
    let pid: Option<i32> = column(row, "pid")?;
    let session = pid.and_then(|pid| u32::try_from(pid).ok());
    let transaction: Option<String> = column(row, "gid")?;
    let by = session
        .map(PinnedBy::Session)
        .or(transaction.map(PinnedBy::Prepared));
    let Some(by) = by else {
        return Ok(None);
    };
    let overdue: Option<i32> = column(row, "overdue")?;
    let mut pin = replies::pin(by);
    pin.overdue = overdue
        .and_then(|overdue| u64::try_from(overdue).ok())
        .map(Duration::from_millis);
    pin.missing_right = column(row, "missing_right")?;
    Ok(Some(pin))
}

/// Ends the sessions that pin a grant of a name whose hold is over for longer than `limit`.
///
/// It may be repeated: a session that has ended pins nothing.
pub(super) async fn end(session: &Session, name: &Name, limit: Duration) -> Result<()> {
    let function = &session.functions.end_pins;
    let arguments: [&(dyn ToSql + Sync); 2] = [&stored(name), &millis(limit)];
    for row in session.call(function, &arguments).await? {
        let pid: i32 = column(&row, "pid")?;
        if let Some(right) = column::<Option<String>>(&row, "missing_right")? {
            tracing::warn!(%name, pid, %right, "a session delays the next holder, and cannot be ended");
        } else {
            tracing::warn!(%name, pid, ?limit, "a session was ended, which has delayed the next holder");
        }
    }
    Ok(())
}
