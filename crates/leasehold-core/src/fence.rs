//! Fencing: a resource rejects writers with stale tokens.
//!
//! A lock cannot stop a writer that sleeps past its lease and then writes. Only the resource can.
//! It compares the [`FencingToken`](crate::FencingToken) of each guard: a token, and the id of the
//! claim that was granted the token. The resource keeps a *mark*: the highest token that it has
//! received, with the claim id. It has two operations:
//!
//! - A **seal** is the first operation under a new token. It raises the mark, so that earlier
//!   holders are rejected from then on. Seal before you read the data that you are going to change.
//! - A **fenced write** is executed only if its token is accepted. It raises the mark if its token
//!   is larger.
//!
//! A token larger than the mark's is accepted, and a smaller one is rejected. An **equal token** is
//! accepted only with the claim id of the mark: it is then the same grant. With another claim id it
//! is rejected. A store grants one token twice only after it has lost data or was split in two. Of
//! the two holders, the first to seal continues, and the other must acquire again. A resource that
//! compares the number alone lets both write.
//!
//! **Versions.** A mark without a claim id was written before claim ids were compared. Only a
//! larger token is accepted after it, and the mark has a claim id from then on. A client of the
//! earlier version treats a mark with a claim id as damaged and changes nothing.
//!
//! Without the seal, tokens do not prevent a lost update. The later holder reads. The earlier
//! holder writes, as the resource has not received a larger token yet. Then the later holder
//! overwrites this with a result of the old value.
//!
//! Fencing needs neither locks nor leases nor clocks. It holds after any other failure, provided
//! that tokens rise.
//!
//! | resource | seal | fenced write |
//! |---|---|---|
//! | a file (feature `file`, on Linux) | `File::seal` | `File::write` |
//! | [keys of Redis](redis) | [`redis::FENCED`] with a read or no command | [`redis::FENCED`] |
//! | [tables of PostgreSQL or SQLite](sql) | [`sql::SEAL`] | a transaction that begins with it |
//!
//! A resource of your own keeps the mark with the data, under the same lock as the data. It
//! compares by [`FencingToken::is_accepted_after`](crate::FencingToken::is_accepted_after), as the
//! example `fenced` shows. [`Guard::token`](crate::Guard::token) alone is for systems that only
//! take a number. [`Token::to_i64`](crate::Token::to_i64) is that number for a column of a database.

#[cfg(all(feature = "file", target_os = "linux"))]
mod file;
pub mod redis;
pub mod sql;

#[cfg(all(feature = "file", target_os = "linux"))]
pub use file::File;
