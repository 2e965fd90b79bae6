//! How a resource refuses late writers.
//!
//! No lock can stop a writer that sleeps past its lease and then writes. Only the resource can, by the [`Token`](crate::Token)
//! that every guard has: it keeps a *mark*, the highest token it has been shown, and
//!
//! - a **seal** is the first operation under a new token. It raises the mark, so that whoever held before is shut out from
//!   then on. Seal before you read what you are going to change;
//! - a **fenced write** is carried out only if its token is not below the mark, and raises the mark if it is above.
//!
//! Without the seal a read-modify-write can be lost in spite of tokens: the later holder reads, the earlier one writes (nothing
//! higher was ever shown to the resource), and the later one writes over it what it made of the old value.
//!
//! There is no lock, no lease and no clock in any of this: it holds whatever else went wrong, as long as tokens rise.
//!
//! | resource | seal | fenced write |
//! |---|---|---|
//! | [a file](File) (feature `file`) | [`File::seal`] | [`File::write`] |
//! | [keys of Redis](redis) | [`redis::FENCED`] without a command, or with one that reads | [`redis::FENCED`] with a command |
//! | [tables of PostgreSQL](postgres) | [`postgres::SEAL`] | any transaction that begins with [`postgres::SEAL`] |
//!
//! For a resource of your own it is a comparison and a number kept with the data, under the same lock as the data; the
//! example `fenced` has one.

#[cfg(feature = "file")]
mod file;
pub mod postgres;
pub mod redis;

#[cfg(feature = "file")]
pub use file::File;
