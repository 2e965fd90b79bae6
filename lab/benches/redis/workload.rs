//! What a peer is told to do: one line of JSON on its stdin. It answers with one line on its stdout: a list of whole
//! numbers, or `null` if it knows no such task. Times are nanoseconds; moments are of `CLOCK_BOOTTIME`.

use serde::{Deserialize, Serialize};

/// One task of a peer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub(crate) enum Workload {
    /// Acquires and releases a lock that nobody else wants, `count` times. Answers how long each took.
    Pairs { name: String, count: usize },
    /// The same with `names` locks at once, each `each` times. Answers how long all took together.
    Names { names: usize, each: usize },
    /// `threads` want the lock `c`, each again and again until a moment. Answers for each turn when it asked, was granted,
    /// and began to release.
    Contend {
        threads: usize,
        hold_micros: u64,
        think_micros: u64,
        until: u64,
    },
    /// Acquires so many locks, and keeps them. Answers how long that took.
    Hold { names: usize },
    /// Makes so many keys live on, `batch` requests in one go, without any condition. Answers no numbers.
    Renew { names: usize, batch: usize },
    /// Publishes `count` messages, one each `gap_micros`. Answers when each was sent.
    Publish { count: usize, gap_micros: u64 },
    /// Subscribes, if it has not, and answers at once, without numbers.
    Subscribe,
    /// Waits for `count` messages. Answers when each came.
    Hear { count: usize },
}
