//! The tasks that the benchmark sends to a peer, each as one line of JSON on the peer's stdin.
//!
//! The peer replies with one line on its stdout: a list of whole numbers, or `null` if it does not
//! know the task. Times are in nanoseconds, and moments are readings of `CLOCK_BOOTTIME`.

use serde::{Deserialize, Serialize};

/// One task of a peer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub(crate) enum Workload {
    /// Acquires and releases a lock that no other client wants, `count` times. Returns the time of
    /// each pair.
    Pairs { name: String, count: usize },
    /// Does the same with `names` locks at once, each of them `each` times. Returns the time of all
    /// pairs together.
    Names { names: usize, each: usize },
    /// `threads` threads acquire a lock again and again until a moment. Returns three moments for
    /// each acquisition: the request, the grant, and the begin of the release.
    Contend {
        name: String,
        threads: usize,
        until: u64,
    },
    /// Publishes `count` messages, one every `gap_micros`. Returns the moment of each send.
    Publish { count: usize, gap_micros: u64 },
    /// Subscribes, unless the peer has subscribed before. Returns an empty list at once.
    Subscribe,
    /// Waits for `count` messages. Returns the moment at which each arrived.
    Receive { count: usize },
}
