//! Until when a session certainly exists.
//!
//! A session ends when the *leader* of the servers has received no report of it for the session's
//! timeout. A reply proves less than it seems to:
//!
//! - A follower replies to pings and reads without the leader. It reports its active sessions to
//!   the leader up to half a tick later. If it is cut off in between, the leader counts from an
//!   earlier report.
//! - A leader that is cut off from the others still replies to pings and reads for several ticks.
//!   Meanwhile the others may have a new leader, which ends sessions by its own clock.
//!
//! So a client proves its session by *heartbeats*. A heartbeat is a `sync`, and after its reply a
//! write. A heartbeat proves the newest write whose reply arrived half a tick or more before the
//! heartbeat's `sync` was sent:
//!
//! ```text
//!  write A ──reply──► half a tick ──► sync B ──reply──► write C ──reply──► valid from A
//! ```
//!
//! Between A and B the leader has requested the active sessions from the follower. Messages between
//! two servers arrive in order. The leader's request arrived at the follower before the reply to B,
//! and the follower's report about A arrived at the leader before C. So the leader has received the
//! report after A was sent. A majority has written C. So any later leader was elected after A was
//! sent, and it keeps every session for the session's timeout from its election.
//!
//! Heartbeats in between do not affect this argument. More heartbeats prove newer writes: with an
//! interval of `p` between heartbeats and half a tick of `h`, the proof is at most `h + 2p` old.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use leasehold_core::internal::BootInstant;

/// The instant from which the timeout of a session certainly counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Liveness {
    valid_from: BootInstant,
    /// The writes that a later heartbeat may prove, the newest last.
    writes: VecDeque<Write>,
    last_reply: BootInstant,
}

/// A write whose reply has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Write {
    sent_at: BootInstant,
    replied_at: BootInstant,
}

/// A heartbeat whose replies have arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heartbeat {
    /// Taken before the `sync` was sent.
    pub(super) sync_sent: BootInstant,
    /// Taken before the write was sent, after the reply to the `sync`.
    pub(super) write_sent: BootInstant,
    pub(super) write_replied: BootInstant,
}

impl Liveness {
    /// Starts with a new session. Its creation is a write that the leader has executed.
    pub(super) fn started(sent_at: BootInstant, replied_at: BootInstant) -> Self {
        let creation = Write {
            sent_at,
            replied_at,
        };
        Self {
            valid_from: sent_at,
            writes: VecDeque::from([creation]),
            last_reply: replied_at,
        }
    }

    pub(super) fn valid_from(&self) -> BootInstant {
        self.valid_from
    }

    /// Returns when the next heartbeat is due.
    pub(super) fn next_heartbeat(&self, interval: Duration) -> BootInstant {
        self.last_reply.saturating_add(interval)
    }

    /// Records a heartbeat; `half_tick` is an upper bound of half a tick of the servers.
    pub(super) fn heartbeat(&mut self, heartbeat: Heartbeat, half_tick: Duration) {
        while let Some(write) = self.writes.front() {
            if write.replied_at.saturating_add(half_tick) > heartbeat.sync_sent {
                break;
            }
            self.valid_from = write.sent_at;
            self.writes.pop_front();
        }

        self.writes.push_back(Write {
            sent_at: heartbeat.write_sent,
            replied_at: heartbeat.write_replied,
        });
        self.last_reply = heartbeat.write_replied;
    }
}

/// Returns an upper bound of half a tick. By default ZooKeeper has no session shorter than two
/// ticks. With a smaller `minSessionTimeout`, this is a bound if the session has two ticks anyway:
/// the measurement requests two fifths of a session, which are two ticks of five.
pub(super) fn half_tick(shortest_session: Duration) -> Duration {
    shortest_session / 4
}

/// Returns the time between heartbeats. It is shorter while claims are held.
pub(super) fn heartbeat_interval(timeout: Duration, is_held: bool) -> Duration {
    if is_held { timeout / 20 } else { timeout / 4 }
}
