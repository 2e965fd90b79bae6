//! Tables of PostgreSQL or SQLite that reject writers with stale tokens: two statements, for any
//! driver.
//!
//! [`SEAL`] is the first statement of every transaction under a lock. It raises the mark of a
//! resource. It returns no row if a later holder has raised the mark, or another claim with an
//! equal token has. Roll back in that case.
//!
//! The row of the mark stays locked until the transaction ends. So all later reads and writes of
//! the transaction, of any table, are fenced with it. The seal of a later holder waits for the
//! commit. The seal of an earlier holder waits too and is then rejected.
//!
#![doc = concat!("```sql\n", include_str!("sql/example.sql"), "```")]
//!
//! In Rust, with any driver that has placeholders:
//!
//! ```text
//! let transaction = client.transaction()?;
//! let token = guard.token().to_i64();
//! let claim = guard.claim_id().to_string();
//! let seal = leasehold::fence::sql::SEAL;
//! let row = transaction.query_opt(seal, &[&"account 42", &token, &claim])?;
//! if row.is_none() {
//!     return Err("another holder has sealed it".into()); // dropping the transaction rolls back
//! }
//! // … read, write, and
//! transaction.commit()?;
//! ```
//!
//! If the resource is one row, the row itself can contain the mark, in two columns:
//!
#![doc = concat!("```sql\n", include_str!("sql/column.sql"), "```")]
//!
//! **Databases.** The statements are the same for PostgreSQL and for SQLite 3.35 or later. SQLite has
//! one writer for the whole database: the seal of a second transaction fails with `SQLITE_BUSY`, or
//! waits for `busy_timeout`. MySQL has no `ON CONFLICT`.
//!
//! **Limits.** A mark is a `bigint`, and the tokens of all stores fit. Marks are as durable as the
//! database: a failover to a standby that lags may lose one. They protect from transactions that
//! begin with the seal, and from no others.
//!
//! **Errors.** On PostgreSQL under `REPEATABLE READ` and `SERIALIZABLE`, a transaction that waited for the seal
//! of another one may fail with a serialization error (`40001`) instead of returning no row. Roll
//! back, and seal again in a new transaction, which then decides. Transactions that seal several
//! resources should do so in one order. Otherwise two of them may deadlock, and the
//! database aborts one.
//!
//! **Cancellation.** A transaction that is not committed does not raise the mark. If the reply to
//! the commit is lost, the commit may have been executed: seal again and read.

/// Makes the table of marks if it is missing: one row for each resource.
///
/// Run it in a migration, or by one process. Two sessions of PostgreSQL that make the table at the same
/// time may both find it missing, and one of them then fails with `duplicate key value violates unique
/// constraint "pg_type_typname_nsp_index"`.
pub const TABLE: &str = include_str!("sql/table.sql");

/// Raises the mark of the resource `$1` (text) to the token `$2` (bigint) of the claim `$3` (text,
/// 32 hexadecimal digits in small letters). Returns one row if they are accepted, and no row if
/// not.
pub const SEAL: &str = include_str!("sql/seal.sql");
