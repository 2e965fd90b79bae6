//! The records of completed jobs.

use std::time::Duration;

use tokio_postgres::types::ToSql;

use super::claims::uuid_of;
use super::reply_error::{column, not_understood};
use super::session::{NoRecords, RecordFunctions, Session};
use super::steps::{call_step, stored};
use leasehold_core::store::{Claim, record_time};
use leasehold_core::{Completion, Error, Name, Record, Result};

/// Returns the functions for records.
///
/// # Errors
/// Unsupported if this client uses a version of the schema without them.
pub(super) fn functions(session: &Session) -> Result<&RecordFunctions> {
    session.functions.records.as_ref().map_err(|reason| {
        let (age, help) = match reason {
            NoRecords::OldSchema => (
                "old",
                "let its owner upgrade it: leasehold setup-postgres --store URL; then open the store",
            ),
            NoRecords::NewSchema => ("newer than this client", "use a newer leasehold"),
        };
        let what = format!("the schema in the database has no records for this client: it is {age}");
        Error::unsupported(what).help(help)
    })
}

/// Reads the record of a lock, which is kept for `life` from now on at least.
pub(super) async fn read(session: &Session, name: &Name, life: Duration) -> Result<Record> {
    let function = &functions(session)?.read;
    let arguments: [&(dyn ToSql + Sync); 2] = [&stored(name), &millis(life)];
    let rows = session.call(function, &arguments).await?;

    let row = rows.first().ok_or_else(not_understood)?;
    let read_at: i64 = column(row, "read_at")?;
    let read_at = record_time(&read_at.to_string()).ok_or_else(not_understood)?;
    match column(row, "record")? {
        Some(text) => Record::parse(text, read_at),
        None => Ok(Record::empty(read_at)),
    }
}

/// Adds a completion and removes the claim, if it holds; returns whether the completion is recorded.
pub(super) async fn complete(
    session: &Session,
    claim: &Claim,
    completion: &Completion,
    life: Duration,
) -> Result<bool> {
    let function = &functions(session)?.complete;
    let name = stored(&claim.name);
    let id = uuid_of(claim.id);
    let (head, tail) = completion.line();
    let life = millis(life);
    let arguments: [&(dyn ToSql + Sync); 6] = [&name, &id, &session.client, &head, &tail, &life];
    call_step(session, function, &arguments).await
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
