//! Keys of a Redis server that refuse late writers: one script, for any client library.
//!
//! ```
//! # #[cfg(feature = "redis")] fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = lab_servers::Redis::start();
//! # let client = redis::Client::open(server.url())?;
//! use leasehold::fence::redis::FENCED;
//!
//! let mut connection = client.get_connection()?;
//! let mut fenced = |(token, claim): (u64, &str), command: &[&str]| {
//!     // Two keys: the mark, and the one that the command is about.
//!     let mut call = redis::cmd("EVAL");
//!     call.arg(FENCED).arg(2).arg("{account}:mark").arg("{account}").arg(token).arg(claim).arg(command);
//!     call.query::<Option<String>>(&mut connection)
//! };
//! // `guard.token().get()` and `guard.fencing_token().claim().to_string()` of two holders
//! let late = (7, "6f1c2a4e9b0d4c5f8a7e3d2b1c0f9e8d");
//! let now = (9, "0b7d1e5a3c9f4826b1d0e4f7a2c85936");
//! assert_eq!(fenced(late, &["GET", "{account}"])?, None);
//! assert_eq!(fenced(now, &["GET", "{account}"])?, None); // seals, and reads
//! let refused = fenced(late, &["SET", "{account}", "50"]).unwrap_err();
//! assert_eq!(refused.code(), Some("LATE"));
//! fenced(now, &["SET", "{account}", "100"])?;
//! assert_eq!(fenced(now, &["GET", "{account}"])?.as_deref(), Some("100"));
//! # Ok(()) }
//! # #[cfg(not(feature = "redis"))] fn main() {}
//! ```

/// Carries out one command of Redis if its fencing token is accepted, and raises the mark to it first.
///
/// | | |
/// |---|---|
/// | `KEYS[1]` | the mark: a string key of its own, made when it is missing |
/// | `KEYS[2]`… | the keys that the command is about, none if there is no command |
/// | `ARGV[1]` | the token, in decimal |
/// | `ARGV[2]` | the claim id, 32 hexadecimal digits in small letters |
/// | `ARGV[3]`… | the command and its arguments; without one the script only seals |
/// | replies | what the command replies; the token if there is none |
/// | rejects | with an error that begins with `LATE` and has the token of the mark; nothing was changed |
///
/// Any command can be fenced, also one that reads: `GET` under a new token is seal and read in one. For several commands in one
/// step write a script of your own that begins as this one does.
///
/// **Limits.** All keys must be in one hash slot on a cluster: give them one `{tag}`. The mark has no end; delete it only together
/// with all that it protects, and when no earlier holder can still be about. It is as durable as the server: one that forgets it
/// (no `appendonly`, a failover to a replica that lags) lets a late writer in until the next seal. It protects from those who
/// write through it, and from nobody else.
///
/// **Errors.** A command that fails after the mark was raised leaves it raised, which does no harm: the token is the holder's.
/// A mark of another type, or one that holds no token, is an error and nothing is changed.
///
/// **Cancellation.** The server carries it out whole or not at all. Without an answer it may have been: repeating a seal is
/// harmless, repeating a write is as harmless as the command is.
pub const FENCED: &str = include_str!("redis/fenced.lua");
