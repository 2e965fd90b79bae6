//! Redis keys that reject writers with stale tokens: one script, for any client library.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = lab_servers::Redis::start();
//! # let client = redis::Client::open(server.url())?;
//! use leasehold::fence::redis::FENCED;
//!
//! let mut connection = client.get_connection()?;
//! let mut fenced = |(token, claim): (u64, &str), command: &[&str]| {
//!     // Two keys: the mark, and the key of the command.
//!     let mut call = redis::cmd("EVAL");
//!     call.arg(FENCED).arg(2).arg("{account}:mark").arg("{account}");
//!     call.arg(token).arg(claim).arg(command);
//!     call.query::<Option<String>>(&mut connection)
//! };
//! // `guard.token().get()` and `guard.claim_id().to_string()` of two holders
//! let late = (7, "6f1c2a4e9b0d4c5f8a7e3d2b1c0f9e8d");
//! let now = (9, "0b7d1e5a3c9f4826b1d0e4f7a2c85936");
//! assert_eq!(fenced(late, &["GET", "{account}"])?, None);
//! assert_eq!(fenced(now, &["GET", "{account}"])?, None); // seals, and reads
//! let refused = fenced(late, &["SET", "{account}", "50"]).unwrap_err();
//! assert_eq!(refused.code(), Some("LATE"));
//! fenced(now, &["SET", "{account}", "100"])?;
//! assert_eq!(fenced(now, &["GET", "{account}"])?.as_deref(), Some("100"));
//! # Ok(()) }
//! ```

/// Executes one Redis command if its fencing token is accepted, and raises the mark to it first.
///
/// | | |
/// |---|---|
/// | `KEYS[1]` | the mark: a string key of its own, which the script makes if it is missing |
/// | `KEYS[2]`… | the keys of the command; none without a command |
/// | `ARGV[1]` | the token, in decimal |
/// | `ARGV[2]` | the claim id, 32 hexadecimal digits in small letters |
/// | `ARGV[3]`… | the command and its arguments; without a command the script only seals |
/// | replies | the reply of the command; the token without a command |
/// | rejects | with an error that begins with `LATE` and has the mark's token; no key is changed |
///
/// Any command can be fenced, including one that reads: `GET` under a new token is a seal and a
/// read in one. For several commands in one step, write a script of your own that begins as this
/// one does.
///
/// **Limits.** On a cluster, all keys must be in one hash slot: give them one `{tag}`. A command
/// has at most 7,900 words; with more, no key is changed. The mark never expires. Delete it only
/// together with all data that it protects, when no earlier holder can still write. The mark is as
/// durable as the server. A server that loses it (without `appendonly`, or by a failover to a
/// replica that lags) accepts a stale writer until the next seal. The mark protects from clients
/// that write through the script, and from no others.
///
/// **Errors.** A command that fails after the mark was raised leaves it raised. This is harmless,
/// because the token is that of the current holder. A mark of another type, or without a token, is
/// an error, and no key is changed.
///
/// **Cancellation.** The server executes the script whole or not at all. If the reply is missing,
/// the script may have been executed. A repeated seal is harmless, and a repeated write is as
/// harmless as its command.
pub const FENCED: &str = include_str!("redis/fenced.lua");
