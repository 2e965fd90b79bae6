//! How a resource refuses late writers.
//!
//! No lock can stop a writer that sleeps past its lease and then writes. Only the resource can, by the
//! [`FencingToken`](crate::FencingToken) that every guard has: a token and the id of the claim that was granted it. The
//! resource keeps a *mark*, the highest token it has been shown together with its claim id, and
//!
//! - a **seal** is the first operation under a new token. It raises the mark, so that earlier holders are rejected from
//!   then on. Seal before you read what you are going to change;
//! - a **fenced write** is carried out only if it is accepted, and raises the mark if its token is above.
//!
//! A larger token than the mark's is accepted, a smaller one is rejected. An **equal token** is accepted only with the
//! claim id of the mark: it is then the same grant. An equal token with another claim id is rejected. A store grants one
//! token twice only after it has lost data or was split in two; of the two holders the first to seal goes on, and the
//! other has to acquire again. A resource that compares the number alone lets both write.
//!
//! **Versions.** A mark without a claim id was written before claim ids were compared. Only a larger token is accepted
//! after it, and the mark has a claim id from then on. A client of that time takes a mark with a claim id for damaged and
//! changes nothing.
//!
//! Without the seal a read-modify-write can be lost in spite of tokens: the later holder reads, the earlier one writes (nothing
//! higher was ever shown to the resource), and the later one writes over it what it made of the old value.
//!
//! There is no lock, no lease and no clock in any of this: it holds whatever else went wrong, as long as tokens rise.
//!
//! | resource | seal | fenced write |
//! |---|---|---|
//! | a file (feature `file`) | `File::seal` | `File::write` |
//! | [keys of Redis](redis) | [`redis::FENCED`] without a command, or with one that reads | [`redis::FENCED`] with a command |
//! | [tables of PostgreSQL](postgres) | [`postgres::SEAL`] | any transaction that begins with [`postgres::SEAL`] |
//!
//! A resource of your own keeps the mark with the data, under the same lock as the data, and compares by
//! [`FencingToken::is_accepted_after`](crate::FencingToken::is_accepted_after); the example `fenced` has one.
//! [`Guard::token`](crate::Guard::token) alone is for systems that take nothing but a number.

#[cfg(feature = "file")]
mod file;
pub mod postgres;
pub mod redis;

#[cfg(feature = "file")]
pub use file::File;
