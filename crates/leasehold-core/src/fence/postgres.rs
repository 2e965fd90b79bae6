//! PostgreSQL tables that reject writers with stale tokens: two statements, for any driver.
//!
//! [`SEAL`] is the first statement of every transaction under a lock. It raises the mark of a
//! resource. It returns no row if a later holder has raised the mark, or another claim with an
//! equal token has. Roll back in that case.
//!
//! The row of the mark stays locked until the transaction ends. So all later reads and writes of
//! the transaction, of any table, are fenced with it. The seal of a later holder waits for the
//! commit. The seal of an earlier holder waits too and is then rejected.
//!
#![doc = concat!("```sql\n", include_str!("postgres/example.sql"), "```")]
//!
//! In Rust, with any driver that has placeholders:
//!
//! ```text
//! let transaction = client.transaction()?;
//! let token = i64::try_from(guard.token().get())?;
//! let claim = guard.claim_id().to_string();
//! let seal = leasehold::fence::postgres::SEAL;
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
#![doc = concat!("```sql\n", include_str!("postgres/column.sql"), "```")]
//!
//! **Versions.** [`TABLE`] does not change an existing table. A table without the column `claim`
//! has the earlier version, which compared tokens alone. [`SEAL`] fails there until [`UPGRADE`] has
//! been run. Afterwards the statements of the earlier version fail and change nothing.
//!
//! **Limits.** A mark is a `bigint`, and the tokens of all stores fit. Marks are as durable as the
//! database: a failover to a standby that lags may lose one. They protect from transactions that
//! begin with the seal, and from no others.
//!
//! **Errors.** Under `REPEATABLE READ` and `SERIALIZABLE`, a transaction that waited for the seal
//! of another one may fail with a serialization error (`40001`) instead of returning no row. Roll
//! back, and seal again in a new transaction, which then decides. Transactions that seal several
//! resources should do so in one order. Otherwise two of them may deadlock, and PostgreSQL aborts
//! one.
//!
//! **Cancellation.** A transaction that is not committed does not raise the mark. If the reply to
//! the commit is lost, the commit may have been executed: seal again and read.

/// Makes the table of marks if it is missing: one row for each resource.
pub const TABLE: &str = include_str!("postgres/table.sql");

/// Adds the claim id to a table of the version that compared tokens alone.
pub const UPGRADE: &str = include_str!("postgres/upgrade.sql");

/// Raises the mark of the resource `$1` (text) to the token `$2` (bigint) of the claim `$3` (text,
/// 32 hexadecimal digits in small letters). Returns one row if they are accepted, and no row if
/// not.
pub const SEAL: &str = include_str!("postgres/seal.sql");
