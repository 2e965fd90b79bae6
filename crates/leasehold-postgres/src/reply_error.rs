//! What errors of the server and of the connection mean.

use std::error::Error as _;
use std::fmt::Display;

use leasehold_core::store::{check_same_kind, share_from_parts};
use leasehold_core::{Error, Result, Share};
use tokio_postgres::Row;
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::row::RowIndex;
use tokio_postgres::types::FromSql;

/// Returns what a reply says about a claim of this share, if it does not say anything else.
pub(super) fn claim_error(error: &tokio_postgres::Error, share: Share) -> Option<Error> {
    let reply = error.as_db_error()?;
    match reply.code().code() {
        "LH003" => Some(mismatch(reply, share)),
        "LH004" => Some(Error::invalid(
            "a claim can give back a part of its share, but cannot take more",
        )),
        "LH005" => Some(
            Error::damaged(reply.message().to_owned())
                .help("compare the clocks of the servers: the token came from a clock far ahead"),
        ),
        _ => None,
    }
}

/// Maps the error of any statement.
pub(super) fn store_error(error: tokio_postgres::Error) -> Error {
    let Some(reply) = error.as_db_error() else {
        return lost(error);
    };
    let code = reply.code();
    if let Some(refused) = refused_login(code.code()) {
        return refused;
    }
    let message = format!("PostgreSQL: {}", reply.message());
    match code.code() {
        "42501" => Error::denied(message).help(
            "grant the role USAGE on the schema and EXECUTE on its functions: \
             leasehold setup-postgres --print shows how",
        ),
        "3D000" => Error::invalid(message).help("create the database, or name another one"),
        "22021" | "22P05" => Error::invalid(message)
            .help("use the characters of the database's encoding, or a database in UTF8"),
        // A replica may not have the schema yet, and then refuses another statement.
        "25006" => Error::unavailable("PostgreSQL: the server cannot be written")
            .help("it is a replica or read-only; name the primary too"),
        _ if is_passing(code) => Error::unavailable(message),
        other => Error::damaged(format!("{message} ({other})")),
    }
    .caused_by(error)
}

/// Returns the error of a refused login. The message of the server, or of a pooler that cannot log
/// in there, has the name of the user, which no error shows.
fn refused_login(code: &str) -> Option<Error> {
    let refused = match code {
        "28P01" => Error::denied("PostgreSQL refuses the password (28P01)"),
        "53300" => Error::unavailable("PostgreSQL has too many connections (53300)"),
        "08P01" => Error::unavailable("the connection pooler refuses the request (08P01)"),
        _ if code.starts_with("28") => {
            Error::denied(format!("PostgreSQL refuses the user ({code})"))
        }
        _ => return None,
    };
    Some(refused.help("read the reason in the log of the server or of the pooler"))
}

/// Whether the same statement may succeed later: the server is starting, full or busy, or the
/// request was late.
pub(super) fn is_passing(code: &SqlState) -> bool {
    let class = &code.code()[..2];
    ["08", "40", "53", "55", "57", "58", "54"].contains(&class) || code.code() == LATE
}

/// Whether the statement had no effect because another transaction was in its way.
pub(super) fn is_in_the_way(error: &tokio_postgres::Error) -> bool {
    let code = error.code().map_or("", SqlState::code);
    ["40001", "40P01", "55P03"].contains(&code)
}

/// Returns the server's clock if the request arrived too late to be executed.
pub(super) fn late_clock(error: &tokio_postgres::Error) -> Option<i64> {
    let reply = error.as_db_error()?;
    (reply.code().code() == LATE)
        .then(|| reply.detail()?.parse().ok())
        .flatten()
}

/// Whether the queue of notifications is full, so that no transaction with one can commit.
pub(super) fn is_queue_full(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::PROGRAM_LIMIT_EXCEEDED)
}

/// Reads a column of a reply.
///
/// # Errors
/// [`is_damaged`](Error::is_damaged) if it is missing, or its value has another type or is null: a
/// function of the schema was replaced.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, at: impl RowIndex + Display) -> Result<T> {
    row.try_get(at)
        .map_err(|error| not_understood().caused_by(error))
}

/// Reads whether a function did what it was called for.
pub(super) fn has_done(rows: &[Row]) -> Result<bool> {
    rows.first().map_or(Ok(false), |row| column(row, 0))
}

pub(super) fn not_understood() -> Error {
    Error::damaged("PostgreSQL: a reply cannot be understood")
}

fn mismatch(reply: &DbError, requested: Share) -> Error {
    let mut parts = reply
        .detail()
        .unwrap_or_default()
        .split(' ')
        .map_while(|part| part.parse().ok());
    let present = parts
        .next()
        .zip(parts.next())
        .and_then(|(weight, capacity)| share_from_parts(weight, capacity).ok());
    match present.map(|present| check_same_kind(requested, present)) {
        Some(Err(error)) => error,
        _ => Error::damaged(reply.message().to_owned()),
    }
}

fn lost(error: tokio_postgres::Error) -> Error {
    let cause = error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string);
    Error::unavailable(format!("the connection to PostgreSQL failed: {cause}")).caused_by(error)
}

/// The request arrived after its client had given up.
const LATE: &str = "LH002";
