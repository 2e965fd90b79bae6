//! The transactions of users that pin grants.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::session::Session;
use super::steps::{millis, stored};
use leasehold_core::store::{claim_id_from_bytes, replies};
use leasehold_core::{LockState, Name, Pin, PinnedBy, Result};

/// Adds the pins to the state of a lock.
pub(super) async fn read(session: &Session, lock_state: &mut LockState) -> Result<()> {
    let stored = stored(&lock_state.name);
    for row in session.call(&session.functions.pins, &[&stored]).await? {
        let claim: Uuid = row.get("claim");
        let claim = claim_id_from_bytes(claim.into_bytes());
        let entry = lock_state
            .entries
            .iter_mut()
            .find(|entry| entry.id == claim);
        if let Some((entry, pin)) = entry.zip(pin(&row)) {
            entry.pins.push(pin);
        }
    }
    Ok(())
}

/// Parses a pin; `None` if a prepared transaction has ended while it was read.
fn pin(row: &Row) -> Option<Pin> {
    let by = match row.get::<_, Option<i32>>("pid") {
        Some(pid) => PinnedBy::Session(u32::try_from(pid).ok()?),
        None => PinnedBy::Prepared(row.get::<_, Option<String>>("gid")?),
    };
    let overdue: Option<i32> = row.get("overdue");
    let mut pin = replies::pin(by);
    pin.overdue = overdue
        .and_then(|overdue| u64::try_from(overdue).ok())
        .map(Duration::from_millis);
    pin.missing_right = row.get("missing_right");
    Some(pin)
}

/// Ends the sessions that pin a grant of a name whose hold is over for longer than `limit`.
///
/// It may be repeated: a session that has ended pins nothing.
pub(super) async fn end(session: &Session, name: &Name, limit: Duration) -> Result<()> {
    let function = &session.functions.end_pins;
    let arguments: [&(dyn ToSql + Sync); 2] = [&stored(name), &millis(limit)];
    for row in session.call(function, &arguments).await? {
        let pid: i32 = row.get("pid");
        if let Some(right) = row.get::<_, Option<String>>("missing_right") {
            tracing::warn!(%name, pid, %right, "a session delays the next holder, and cannot be ended");
        } else {
            tracing::warn!(%name, pid, ?limit, "a session was ended, which has delayed the next holder");
        }
    }
    Ok(())
}
