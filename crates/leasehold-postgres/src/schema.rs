//! The schema in the database: its text, and how it is made.

use leasehold_core::{Error, Result};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::reply_error::store_error;

/// The version of the schema that this client uses.
pub(super) const VERSION: i32 = 1;

/// Returns the statements that make the schema, in one transaction.
#[must_use]
pub(super) fn text(schema: &str) -> String {
    let parts = [
        include_str!("../sql/tables.sql"),
        include_str!("../sql/helpers.sql"),
        include_str!("../sql/enter.sql"),
        include_str!("../sql/leave.sql"),
        include_str!("../sql/api.sql"),
        include_str!("../sql/rights.sql"),
    ];
    let create = "CREATE SCHEMA leasehold;\n".to_owned();
    named(schema, &(create + &parts.concat()))
}

/// Puts the name of a schema into a text that is written for the schema `leasehold`.
///
/// Messages begin with `leasehold: `, and keep the name of the program.
#[must_use]
pub(super) fn named(schema: &str, text: &str) -> String {
    if schema == "leasehold" {
        return text.to_owned();
    }
    text.replace("leasehold_private", &format!("{schema}_private"))
        .replace("leasehold.", &format!("{schema}."))
        .replace("SCHEMA leasehold", &format!("SCHEMA {schema}"))
        .replace("'leasehold queue ", &format!("'{schema} queue "))
        .replace("'leasehold pin ", &format!("'{schema} pin "))
        .replace("'leasehold_'", &format!("'{schema}_'"))
}

/// Makes the schema. Two clients that make it at once both succeed.
pub(super) async fn create(client: &Client, schema: &str) -> Result<()> {
    let script = format!(
        "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('leasehold schema {schema}', 4711)); \
         {}; COMMIT",
        text(schema)
    );
    let Err(error) = client.batch_execute(&script).await else {
        return Ok(());
    };
    // The transaction is still open, and its error is what matters.
    let _ = client.batch_execute("ROLLBACK").await;
    match error.code() {
        Some(&SqlState::DUPLICATE_SCHEMA | &SqlState::UNIQUE_VIOLATION) => Ok(()),
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Err(Error::denied(format!(
            "the database has no schema {schema}, and this role cannot create it"
        ))
        .help("let the owner of the database run: leasehold setup-postgres --store URL")
        .caused_by(error)),
        _ => Err(store_error(error)),
    }
}

/// Whether the error says that the schema or one of its functions is missing.
pub(super) fn is_missing(error: &tokio_postgres::Error) -> bool {
    matches!(
        error.code(),
        Some(&SqlState::INVALID_SCHEMA_NAME | &SqlState::UNDEFINED_FUNCTION)
    )
}
