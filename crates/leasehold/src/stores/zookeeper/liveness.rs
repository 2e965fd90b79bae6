//! Until when a session certainly lives.
//!
//! A session ends when the *leader* of the servers has had no report of it for the session's
//! timeout. A reply shows less than it seems to:
//!
//! - A follower replies to pings and reads by itself. It reports its active sessions to the leader
//!   up to half a tick later. If it is cut off in between, the leader counts from an earlier
//!   report.
//! - A leader that is cut off from the others replies to pings and reads for several ticks more.
//!   Meanwhile the others may have a new leader, which ends sessions by its own count.
//!
//! So *heartbeats* prove a session: a `sync`, and after its reply a write. A heartbeat proves the
//! newest write whose reply arrived half a tick or more before the heartbeat's `sync` was sent:
//!
//! ```text
//!  write A ──reply──► half a tick ──► sync B ──reply──► write C ──reply──► valid from A
//! ```
//!
//! Between A and B the leader has requested the active sessions from the follower. Messages between
//! two servers arrive in order. The leader's request arrived at the follower before the reply to B,
//! and the follower's report about A arrived at the leader before C. So the leader has received the
//! report after A was sent. A majority has written C. So a later leader took its office after A was
//! sent, and it lets every session live for the session's timeout from then.
//!
//! Heartbeats in between change nothing in this argument. More heartbeats prove newer writes: with
//! an interval of `p` between heartbeats and half a tick of `h`, the proof is at most `h + 2p` old.

use std::collections::VecDeque;
use std::time::Duration;

use crate::runtime::clock::BootInstant;

/// The instant from which the timeout of a session certainly ran.
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
/// ticks.
pub(super) fn half_tick(shortest_session: Duration) -> Duration {
    shortest_session / 4
}

/// Returns the time between heartbeats. It is shorter while claims are held.
pub(super) fn heartbeat_interval(timeout: Duration, is_held: bool) -> Duration {
    if is_held { timeout / 20 } else { timeout / 4 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HALF_TICK: u64 = 100;

    /// A leader and the follower of a client, with delays between them in milliseconds. Messages
    /// in one direction arrive in order.
    #[derive(Debug)]
    struct Servers {
        /// The delays of the leader's messages, one for each ten milliseconds.
        down: Vec<u64>,
        /// The delays of the follower's messages.
        up: Vec<u64>,
        /// When the leader sends its first ping.
        phase: u64,
        /// When the follower is cut off.
        cut: u64,
    }

    /// Returns when a message arrives: not before any earlier message.
    fn in_order(delays: &[u64], sent: u64) -> u64 {
        (0..=sent.min(delays.len() as u64 * 10))
            .map(|at| at + delays[(at / 10) as usize % delays.len()])
            .max()
            .unwrap_or(0)
            .max(sent)
    }

    impl Servers {
        fn pings(&self) -> impl Iterator<Item = u64> + '_ {
            (0..60).map(|n| self.phase + n * HALF_TICK)
        }

        /// Returns when the leader last received a report of a session before the cut. The session
        /// sent requests to the follower at the instants `sent`.
        fn last_report(&self, sent: &[u64]) -> u64 {
            let mut reported = 0;
            let mut before = 0;
            for ping in self.pings() {
                let at_follower = in_order(&self.down, ping);
                let at_leader = in_order(&self.up, at_follower);
                if at_leader >= self.cut {
                    break;
                }
                if sent.iter().any(|sent| (before..at_follower).contains(sent)) {
                    reported = at_leader;
                }
                before = at_follower;
            }
            reported
        }

        /// Returns when the follower has the leader's reply to a request; `None` if it never
        /// arrives.
        fn through_leader(&self, sent: u64) -> Option<u64> {
            let at_leader = in_order(&self.up, sent);
            if at_leader >= self.cut {
                return None;
            }
            let back = in_order(&self.down, at_leader);
            (back < self.cut).then_some(back)
        }
    }

    /// The outcome of a run up to the cut.
    #[derive(Debug)]
    struct Outcome {
        /// The instant from which `Liveness` counts the session.
        valid_from: u64,
        /// The leader's last report of the session.
        last_report: u64,
    }

    impl Outcome {
        fn is_safe(&self) -> bool {
            self.valid_from <= self.last_report
        }
    }

    /// Sends heartbeats until the follower is cut off.
    fn run(
        servers: &Servers,
        interval: u64,
        heartbeat: impl Fn(&mut Liveness, Heartbeat),
    ) -> Outcome {
        let instant = BootInstant::from_nanos;
        let mut liveness = Liveness::started(instant(0), instant(0));
        let mut sent = vec![0];
        loop {
            let next = liveness.next_heartbeat(Duration::from_nanos(interval));
            let sync = next.as_nanos();
            sent.push(sync);
            let Some(write) = servers.through_leader(sync) else {
                break;
            };
            sent.push(write);
            let Some(replied_at) = servers.through_leader(write) else {
                break;
            };

            let proof = Heartbeat {
                sync_sent: instant(sync),
                write_sent: instant(write),
                write_replied: instant(replied_at),
            };
            heartbeat(&mut liveness, proof);
        }
        Outcome {
            valid_from: liveness.valid_from().as_nanos(),
            last_report: servers.last_report(&sent),
        }
    }

    fn servers() -> impl Strategy<Value = Servers> {
        let delays = || prop::collection::vec(0u64..150, 1..200);
        let parts = (delays(), delays(), 0..HALF_TICK, 1u64..3_000);
        parts.prop_map(|(down, up, phase, cut)| Servers {
            down,
            up,
            phase,
            cut,
        })
    }

    fn fast_servers() -> Servers {
        Servers {
            down: vec![1],
            up: vec![1],
            phase: 50,
            cut: 340,
        }
    }

    proptest! {
        #[test]
        fn leader_has_confirmed_the_session_since_valid_from(
            servers in servers(),
            interval in 1..=HALF_TICK,
        ) {
            let half_tick = Duration::from_nanos(HALF_TICK);
            let outcome = run(&servers, interval, |liveness, heartbeat| {
                liveness.heartbeat(heartbeat, half_tick);
            });
            prop_assert!(outcome.is_safe(), "{outcome:?}");
        }
    }

    /// A reply alone does not prove that the leader has a report of the session.
    #[test]
    fn validity_counted_from_reply_breaks_exclusion() {
        let outcome = run(&fast_servers(), HALF_TICK, |liveness, heartbeat| {
            *liveness = Liveness::started(heartbeat.write_sent, heartbeat.write_replied);
        });
        assert!(!outcome.is_safe(), "{outcome:?}");
    }

    /// Many heartbeats within half a tick must not prove each other: the leader may not have
    /// requested a report in between.
    #[test]
    fn heartbeats_within_half_a_tick_prove_no_newer_write() {
        let run = |half_tick: u64| {
            run(&fast_servers(), 5, |liveness, heartbeat| {
                liveness.heartbeat(heartbeat, Duration::from_nanos(half_tick));
            })
        };
        let without = run(0);
        assert!(!without.is_safe(), "{without:?}");
        let with = run(HALF_TICK);
        assert!(with.is_safe(), "{with:?}");
    }

    /// The worst instant is just before the reply to the next heartbeat.
    #[test]
    fn proof_of_held_session_is_at_most_a_fifth_of_it_old() {
        let session = Duration::from_secs(10);
        let interval = heartbeat_interval(session, true);
        let half_tick = half_tick(Duration::from_secs(4));
        let begin = BootInstant::from_nanos(0);
        let mut liveness = Liveness::started(begin, begin);
        for _ in 0..40 {
            let next = liveness.next_heartbeat(interval);
            let age = next.duration_since(liveness.valid_from());
            assert!(age <= half_tick + 2 * interval, "{age:?}");
            assert!(age <= session / 5, "{age:?}");

            let heartbeat = Heartbeat {
                sync_sent: next,
                write_sent: next,
                write_replied: next,
            };
            liveness.heartbeat(heartbeat, half_tick);
        }
    }
}
