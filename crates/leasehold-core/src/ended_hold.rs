//! Why a hold has ended that its client did not release.

use std::fmt;

use crate::claimant_info::parse_words;
use crate::{ClaimantInfo, Token};

/// A hold that its client did not release and nobody broke, and why it has ended.
///
/// [`LockState::ended`](crate::LockState::ended) has the last one of a lock.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// if let Some(ended) = locks.inspect("nightly").await?.ended {
///     println!("the hold with token {} ended: {}", ended.token, ended.reason);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndedHold {
    /// The token of the hold.
    pub token: Token,
    /// Why it has ended.
    pub reason: EndReason,
    /// The last token of the lock just after the hold had ended. It is larger than `token` if the
    /// same step has granted the lock again.
    pub followed_by: Token,
}

/// Creates the end of a hold, as a store has kept it.
#[must_use]
pub fn ended_hold(token: Token, reason: EndReason, followed_by: Token) -> EndedHold {
    EndedHold {
        token,
        reason,
        followed_by,
    }
}

/// Why a hold has ended that its client did not release.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// use leasehold::EndReason;
/// let ended = locks.inspect("nightly").await?.ended;
/// if ended.is_some_and(|ended| ended.reason == EndReason::LeaseEnded) {
///     println!("its client did not renew it");
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndReason {
    /// Its process has ended, and another client of the same machine has seen that.
    #[non_exhaustive]
    ProcessEnded {
        /// That client.
        seen_by: Option<Box<ClaimantInfo>>,
    },
    /// `leasehold run` was killed. Its watchdog has ended the command, and then released the lock.
    ReleasedByWatchdog,
    /// The connection of its client was missing for the crash grace.
    ConnectionMissing,
    /// Its client did not renew it in time.
    LeaseEnded,
}

/// Reads a reason from its letter, and from the words of the client that has seen the end.
///
/// | letter | reason |
/// |---|---|
/// | `P` | its process has ended |
/// | `W` | released by its watchdog |
/// | `C` | its connection was missing |
/// | `L` | its lease has ended |
#[must_use]
pub fn end_reason(letter: &str, seen_by: &str) -> Option<EndReason> {
    Some(match letter {
        "P" => EndReason::ProcessEnded {
            // The last word, a label, may be empty.
            seen_by: parse_words(&mut seen_by.trim_start().split(' ')).map(Box::new),
        },
        "W" => EndReason::ReleasedByWatchdog,
        "C" => EndReason::ConnectionMissing,
        "L" => EndReason::LeaseEnded,
        _ => return None,
    })
}

/// Writes the reason for people, such as `lease ended`.
impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ProcessEnded { seen_by: None } => f.write_str("its process ended"),
            Self::ProcessEnded {
                seen_by: Some(client),
            } => write!(f, "its process ended (seen by {client})"),
            Self::ReleasedByWatchdog => f.write_str("released by its watchdog"),
            Self::ConnectionMissing => f.write_str("connection missing"),
            Self::LeaseEnded => f.write_str("lease ended"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_is_written_for_people() {
        let words = " 1763731234567 42 node-1 worker a%20b";
        for (letter, seen_by, expected) in [
            (
                "P",
                words,
                "its process ended (seen by worker[42]@node-1 (a b))",
            ),
            (
                "P",
                "1763731234567 42 node-1 worker ",
                "its process ended (seen by worker[42]@node-1)",
            ),
            ("P", "damaged", "its process ended"),
            ("W", "", "released by its watchdog"),
            ("C", "", "connection missing"),
            ("L", "", "lease ended"),
        ] {
            let reason = end_reason(letter, seen_by).expect("it is known");
            assert_eq!(reason.to_string(), expected);
        }
        assert_eq!(end_reason("?", ""), None);
    }
}
