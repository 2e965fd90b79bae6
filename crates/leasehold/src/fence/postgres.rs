//! Tables of a PostgreSQL database that refuse late writers: two statements, for any driver.
//!
//! [`SEAL`] is the first statement of every transaction under a lock. It raises the mark of a resource, or gives no row if a
//! later holder has, or another claim with an equal token: then roll back. The row of the mark stays locked until the transaction ends, so whatever follows in the
//! transaction, reads and writes of any table, is fenced with it: a later holder's seal waits for the commit, and a late one
//! waits too and is then refused.
//!
#![doc = concat!("```sql\n", include_str!("postgres/example.sql"), "```")]
//!
//! In Rust, with any driver that has placeholders:
//!
//! ```text
//! let transaction = client.transaction()?;
//! let token = i64::try_from(guard.token().get())?;
//! let claim = guard.fencing_token().claim().to_string();
//! if transaction.query_opt(leasehold::fence::postgres::SEAL, &[&"account 42", &token, &claim])?.is_none() {
//!     return Err("another holder has sealed it".into()); // dropping the transaction rolls back
//! }
//! // … read, write, and
//! transaction.commit()?;
//! ```
//!
//! Where one row is the resource, it can keep its mark itself, in two columns:
//!
#![doc = concat!("```sql\n", include_str!("postgres/column.sql"), "```")]
//!
//! **Versions.** [`TABLE`] leaves an existing table as it is. A table without the column `claim` is of the version that
//! compared tokens alone: [`SEAL`] fails there until [`UPGRADE`] has been run. Afterwards the statements of that version
//! fail, and change nothing.
//!
//! **Limits.** A mark is a `bigint`; tokens of all stores fit. Marks are as durable as the database: a failover to a standby that
//! lags may forget one. They protect from transactions that begin with the seal, and from no others.
//!
//! **Errors.** Under `REPEATABLE READ` and `SERIALIZABLE` a transaction that waited for another's seal may fail with a serialization
//! error (`40001`) instead of getting no row: roll back, and seal again in a new transaction, which then decides. Transactions that
//! seal several resources should do so in one order, or PostgreSQL ends one of two as a deadlock.
//!
//! **Cancellation.** A transaction that is not committed has raised nothing. If the answer to the commit is lost it may have been
//! carried out: seal again and read.

/// Makes the table of marks unless it is there: one row for each resource.
pub const TABLE: &str = include_str!("postgres/table.sql");

/// Adds the claim id to a table of the version that compared tokens alone.
pub const UPGRADE: &str = include_str!("postgres/upgrade.sql");

/// Raises the mark of the resource `$1` (text) to the token `$2` (bigint) of the claim `$3` (text, 32 hexadecimal digits
/// in small letters): one row if they are accepted, none if they are not.
pub const SEAL: &str = include_str!("postgres/seal.sql");
