//! The schema in the database: its text, and how it is made.

use leasehold_core::{Error, Result};
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::{Client, SimpleQueryMessage};

use super::reply_error::store_error;

/// The version of the schema that this client makes. It also uses the versions from 1 on.
///
/// A client of the version N connects with the function `connect_N`, which later schemas keep: with
/// one number for the whole schema, the first new client would end the sessions of all others at
/// their next reconnect. Only the owner upgrades, because a superuser who is not the owner would own
/// the new functions, which run with the rights of their owner. A role that may call `enter_1` may
/// call the new functions too. A routine that needs other arguments or columns is another routine.
pub(super) const VERSION: i32 = 2;

/// Pins a grant in a transaction of the user, if it is still there: the name `$1` (text), the token `$2`
/// (bigint), the claim `$3` (text), and the milliseconds `$4` (bigint) for which the transaction may
/// stand idle.
///
/// [`Guard::check_binds`](leasehold_core::Guard::check_binds) returns what to bind, and the statement
/// for a schema with another name.
pub const CHECK: &str = include_str!("../sql/check.sql").trim_ascii_end();

/// Returns the statements that make the schema or upgrade it. They are executed in one transaction.
#[must_use]
pub(super) fn text(schema: &str) -> String {
    named(schema, GUARD) + &statements(schema)
}

/// Returns those that follow the guard.
fn statements(schema: &str) -> String {
    let parts = [
        include_str!("../sql/tables.sql"),
        include_str!("../sql/helpers.sql"),
        include_str!("../sql/enter.sql"),
        include_str!("../sql/leave.sql"),
        include_str!("../sql/api.sql"),
        include_str!("../sql/records.sql"),
        include_str!("../sql/rights.sql"),
    ];
    // An earlier version has most of the routines.
    let text = parts
        .concat()
        .replace("\nCREATE FUNCTION", "\nCREATE OR REPLACE FUNCTION")
        .replace("\nCREATE PROCEDURE", "\nCREATE OR REPLACE PROCEDURE");
    named(schema, &text)
}

/// Returns the statements that let a role use the schema, and nothing more.
#[must_use]
pub(super) fn grants(schema: &str, role: &str) -> String {
    let role = role.replace('"', "\"\"");
    format!(
        "GRANT USAGE ON SCHEMA {schema} TO \"{role}\";\n\
         GRANT EXECUTE ON ALL ROUTINES IN SCHEMA {schema} TO \"{role}\";\n"
    )
}

/// Puts the name of a schema into a text that is written for the schema `leasehold`.
///
/// Messages begin with `leasehold: `, and keep the name of the program.
#[must_use]
pub(super) fn named(schema: &str, text: &str) -> String {
    // In one pass: the other name may contain what is replaced.
    text.replace("leasehold_private", "\0_private")
        .replace("leasehold.", "\0.")
        .replace("SCHEMA leasehold", "SCHEMA \0")
        .replace("'leasehold'", "'\0'")
        .replace("'leasehold schema leasehold'", "'leasehold schema \0'")
        .replace("'leasehold queue ", "'\0 queue ")
        .replace("'leasehold pin ", "'\0 pin ")
        .replace("'leasehold_'", "'\0_'")
        .replace('\0', schema)
}

/// Makes the schema, or upgrades an older one. Of clients that do it at once, one does it and all succeed.
pub(super) async fn create(client: &Client, schema: &str) -> Result<()> {
    let guard = named(schema, &[GUARD, STOP].concat());
    let script = format!("BEGIN; {guard} {} COMMIT", statements(schema));
    let Err(error) = client.batch_execute(&script).await else {
        return Ok(());
    };
    // The transaction is still open, and its error is what matters.
    let _ = client.batch_execute("ROLLBACK").await;
    match error.code() {
        Some(code) if code.code() == MADE => Ok(()),
        Some(code) if code.code() == NEWER => Err(Error::unsupported(format!(
            "the schema {schema} is newer than version {VERSION}, which this client makes"
        ))
        .help("use a newer leasehold")
        .caused_by(error)),
        Some(&SqlState::DUPLICATE_SCHEMA | &SqlState::UNIQUE_VIOLATION) => Ok(()),
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            let reason = error.as_db_error().map_or("", DbError::message);
            Err(Error::denied(format!(
                "the database has no schema {schema} of version {VERSION}, and this role cannot make \
                 it: {reason}"
            ))
            .help(format!(
                "let the owner of the database run: leasehold setup-postgres --store URL; or create \
                 {schema} and {schema}_private for this role"
            ))
            .caused_by(error))
        }
        _ if is_missing(&error) => Err(dropped(error)),
        _ => Err(store_error(error)),
    }
}

/// Whether the error says that the schema or a part of it is missing.
pub(super) fn is_missing(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        Some(
            &SqlState::INVALID_SCHEMA_NAME
            | &SqlState::UNDEFINED_FUNCTION
            | &SqlState::UNDEFINED_TABLE
            | &SqlState::UNDEFINED_OBJECT,
        ) => true,
        Some(&SqlState::INTERNAL_ERROR) => {
            let message = error.as_db_error().map_or("", DbError::message);
            DROPPED_MEANWHILE
                .iter()
                .any(|start| message.starts_with(start))
        }
        _ => false,
    }
}

/// The error of a statement that found a part of the schema and could not use it any more.
pub(super) fn dropped(error: tokio_postgres::Error) -> Error {
    Error::unavailable("the schema of leasehold was dropped, or a part of it")
        .help("if it stays so, let its owner run: leasehold setup-postgres --store URL")
        .caused_by(error)
}

/// Refuses a server that is not PostgreSQL 15 or newer, and returns the id of the process that serves
/// the connection. Others speak the protocol, and their advisory locks do not lock.
pub(super) async fn check_server(client: &Client) -> Result<i32> {
    let reply = client
        .simple_query("SET LOCAL statement_timeout = 0; SELECT version(), pg_backend_pid()")
        .await
        .map_err(store_error)?;
    let row = reply.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let column = |at| row.and_then(|row| row.get(at)).unwrap_or_default();
    let version = column(0);
    match release(version) {
        Some(release) if release >= RELEASE_MIN => {}
        Some(release) => {
            return Err(Error::unsupported(format!(
                "the server is PostgreSQL {release}, and leasehold needs {RELEASE_MIN}"
            ))
            .help("upgrade the server"));
        }
        None => {
            return Err(Error::unsupported(format!(
                "the server is not PostgreSQL: {}",
                version.chars().take(VERSION_SHOWN_MAX).collect::<String>()
            ))
            .help("use a PostgreSQL server: what only speaks its protocol has no advisory locks"));
        }
    }
    column(1)
        .parse()
        .map_err(|_| Error::damaged("PostgreSQL: the id of a process is not a number"))
}

/// Returns the release of PostgreSQL that a version names; `None` if it is another program's.
fn release(version: &str) -> Option<u32> {
    let number = version.strip_prefix("PostgreSQL ")?;
    if OTHERS.iter().any(|other| version.contains(other)) {
        return None;
    }
    let end = number
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(number.len());
    number[..end].parse().ok()
}

/// Refuses a schema of a newer release.
pub(super) fn check_version(schema: &str, version: i32) -> Result<()> {
    if version <= VERSION {
        return Ok(());
    }
    let what =
        format!("the schema {schema} has version {version}, and this client knows {VERSION}");
    Err(Error::unsupported(what).help("use a newer leasehold"))
}

const GUARD: &str = include_str!("../sql/guard.sql");
const STOP: &str = include_str!("../sql/stop.sql");
/// Another client has made the schema meanwhile.
const MADE: &str = "LH010";
/// What the server says, in no other language, of an object that was dropped while a statement ran.
const DROPPED_MEANWHILE: &[&str] = &[
    "cache lookup failed for ",
    "could not open relation with OID ",
    "tuple concurrently ",
];
/// The schema is newer than the statements that upgrade it.
const NEWER: &str = "LH009";
const RELEASE_MIN: u32 = 15;
const VERSION_SHOWN_MAX: usize = 60;
/// Words in the versions of programs that speak PostgreSQL's protocol, and call themselves so.
const OTHERS: &[&str] = &[
    "-YB-",
    "Yugabyte",
    "Cockroach",
    "Redshift",
    "Greenplum",
    "Materialize",
    "DSQL",
    "Spanner",
    "Cloudberry",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_only_speak_the_protocol_are_not_postgresql() {
        assert_eq!(
            release("PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64"),
            Some(15)
        );
        assert_eq!(release("PostgreSQL 19beta1 on x86_64"), Some(19));
        for version in [
            "CockroachDB CCL v25.1.2 (x86_64-pc-linux-gnu, built 2025/03/12)",
            "PostgreSQL 15.12-YB-2.25.1.0-b0 on x86_64-pc-linux-gnu",
            "PostgreSQL 8.0.2 on i686-pc-linux-gnu, Redshift 1.0.12103",
            "PostgreSQL 12.12 (Greenplum Database 7.1.0 build commit:e7c2b1f)",
            "PostgreSQL 9.5.0 on x86_64-unknown-linux-gnu (Materialize v0.130.0)",
            "",
        ] {
            assert_eq!(release(version), None, "{version}");
        }
    }

    #[test]
    fn newer_schema_is_refused_by_name() {
        assert!(check_version("leasehold", VERSION).is_ok());
        let error = check_version("orders", VERSION + 1).expect_err("it is newer");
        assert!(error.is_unsupported(), "{error}");
        assert!(error.to_string().contains("orders"), "{error}");
    }

    #[test]
    fn another_name_replaces_every_use_of_the_schema() {
        let text = text("orders") + &named("orders", STOP);
        for line in text.lines() {
            let code = line.split("--").next().unwrap_or_default();
            let rest = code
                .replace("leasehold: ", "")
                .replace("'leasehold schema orders'", "")
                .replace("IS 'leasehold 2'", "")
                .replace("'^leasehold (", "")
                .replace("leasehold.quiet", "");
            assert!(!rest.contains("leasehold"), "{line}");
        }
        // Whatever the name contains.
        for schema in ["leasehold_x", "leasehold_private"] {
            let expected = text.replace("orders", schema);
            assert_eq!(super::text(schema) + &named(schema, STOP), expected);
        }
    }
}
