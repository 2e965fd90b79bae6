//! Until when a session certainly lives.
//!
//! A session ends when the *leader* of the servers has heard nothing of it for its timeout. An answer shows less than it
//! seems to:
//!
//! - A follower answers pings and reads by itself, and tells the leader half a tick later whom it has heard of. If it is cut
//!   off in between, the leader counts from what it heard before.
//! - A leader that is cut off from the others answers pings and reads for several ticks more, while they have another
//!   leader, who ends sessions on his own.
//!
//! So a session is proven by *beats*: a `sync`, and when it is answered a write. A beat proves the newest write that was
//! answered half a tick or more before its `sync` was asked:
//!
//! ```text
//!  write A ──answered──► half a tick ──► sync B ──answered──► write C ──answered──► proven from A
//! ```
//!
//! Between A and B the leader has asked the follower whom it has heard of. What two servers tell each other arrives in order:
//! the leader's question came to the follower before the answer to B, and the follower's word about A came to the leader
//! before C. So the leader has heard of the session after A was sent. And C was written by a majority, so whoever leads
//! later has come to lead after A was sent, and lets every session live for its timeout from then.
//!
//! Beats in between change nothing of that. The more there are, the newer is the write that each of them proves: with a
//! pause of `p` between beats and half a tick of `h`, what is proven is at most `h + 2p` old.

use std::collections::VecDeque;
use std::time::Duration;

use crate::runtime::clock::BootInstant;

/// From when on the timeout of a session certainly ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Liveness {
    valid_from: BootInstant,
    /// The answered writes that a later beat may prove, the newest last.
    writes: VecDeque<Write>,
    last_answered: BootInstant,
}

/// An answered write: when it was asked, and when its answer was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Write {
    asked: BootInstant,
    answered: BootInstant,
}

/// A beat that was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beat {
    /// Before its `sync` was sent.
    pub(super) begun: BootInstant,
    /// Before its write was sent, after the answer to the `sync`.
    pub(super) asked: BootInstant,
    pub(super) answered: BootInstant,
}

impl Liveness {
    /// A session that was just begun: a write too, of which the leader has heard.
    pub(super) fn started(sent_at: BootInstant, replied_at: BootInstant) -> Self {
        Self {
            valid_from: sent_at,
            writes: VecDeque::from([Write {
                asked: sent_at,
                answered: replied_at,
            }]),
            last_answered: replied_at,
        }
    }

    pub(super) fn valid_from(&self) -> BootInstant {
        self.valid_from
    }

    /// When the next beat may begin.
    pub(super) fn next_heartbeat(&self, pause: Duration) -> BootInstant {
        self.last_answered.saturating_add(pause)
    }

    /// Takes note of a beat; `half_tick` is at least half a tick of the servers.
    pub(super) fn heartbeat(&mut self, heartbeat: Beat, half_tick: Duration) {
        while let Some(write) = self
            .writes
            .front()
            .filter(|write| write.answered.saturating_add(half_tick) <= heartbeat.begun)
        {
            self.valid_from = write.asked;
            self.writes.pop_front();
        }

        self.writes.push_back(Write {
            asked: heartbeat.asked,
            answered: heartbeat.answered,
        });
        self.last_answered = heartbeat.answered;
    }
}

/// At least half a tick, as ZooKeeper has no session shorter than two ticks unless it is told to.
pub(super) fn half_tick(shortest_session: Duration) -> Duration {
    shortest_session / 4
}

/// How long to wait between beats, while claims are held and while none is.
pub(super) fn heartbeat_interval(timeout: Duration, is_held: bool) -> Duration {
    if is_held { timeout / 20 } else { timeout / 4 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HALF_TICK: u64 = 100;

    /// A leader and the follower that a client is connected to, with delays between them, in milliseconds. What is sent one
    /// way arrives in order.
    #[derive(Debug)]
    struct Servers {
        /// How long what the leader sends at a time takes, and what the follower sends.
        down: Vec<u64>,
        up: Vec<u64>,
        phase: u64,
        cut: u64,
    }

    fn in_order(delays: &[u64], sent: u64) -> u64 {
        // Nothing overtakes: what was sent earlier and is slower holds up what is sent now.
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

        /// The last time the leader heard, before the follower was cut off, of a session that asked the follower at these
        /// times.
        fn received(&self, sent: &[u64]) -> u64 {
            let mut heard = 0;
            let mut before = 0;
            for ping in self.pings() {
                let at_follower = in_order(&self.down, ping);
                let at_leader = in_order(&self.up, at_follower);
                if at_leader >= self.cut {
                    break;
                }
                if sent.iter().any(|sent| (before..at_follower).contains(sent)) {
                    heard = at_leader;
                }
                before = at_follower;
            }
            heard
        }

        /// When a question to the leader, asked at the follower, is answered there; `None` if it never is.
        fn through_leader(&self, sent: u64) -> Option<u64> {
            let at_leader = in_order(&self.up, sent);
            (at_leader < self.cut)
                .then(|| in_order(&self.down, at_leader))
                .filter(|back| *back < self.cut)
        }
    }

    /// Beats until the follower is cut off; what is proven then by `heartbeat`, and when the leader really heard last.
    fn run(servers: &Servers, pause: u64, heartbeat: impl Fn(&mut Liveness, Beat)) -> (u64, u64) {
        let moment = BootInstant::from_nanos;
        let mut liveness = Liveness::started(moment(0), moment(0));
        let mut sent = vec![0];
        loop {
            let sync = liveness
                .next_heartbeat(Duration::from_nanos(pause))
                .as_nanos();
            sent.push(sync);
            let Some(write) = servers.through_leader(sync) else {
                break;
            };
            sent.push(write);
            let Some(replied_at) = servers.through_leader(write) else {
                break;
            };
            heartbeat(
                &mut liveness,
                Beat {
                    begun: moment(sync),
                    asked: moment(write),
                    answered: moment(replied_at),
                },
            );
        }
        (liveness.valid_from().as_nanos(), servers.received(&sent))
    }

    fn servers() -> impl Strategy<Value = Servers> {
        let delays = || prop::collection::vec(0u64..150, 1..200);
        (delays(), delays(), 0..HALF_TICK, 1u64..3_000).prop_map(|(down, up, phase, cut)| Servers {
            down,
            up,
            phase,
            cut,
        })
    }

    proptest! {
        #[test]
        fn leader_has_confirmed_the_session_since_valid_from(servers in servers(), pause in 1..=HALF_TICK) {
            let half_tick = Duration::from_nanos(HALF_TICK);
            let (proven, heard) = run(&servers, pause, |liveness, heartbeat| liveness.heartbeat(heartbeat, half_tick));
            prop_assert!(proven <= heard, "proven from {proven}, heard at {heard}");
        }
    }

    /// What an answer seems to show: that the leader has heard of the question.
    #[test]
    fn validity_counted_from_reply_breaks_exclusion() {
        let servers = Servers {
            down: vec![1],
            up: vec![1],
            phase: 50,
            cut: 340,
        };
        let (proven, heard) = run(&servers, HALF_TICK, |liveness, heartbeat| {
            *liveness = Liveness::started(heartbeat.asked, heartbeat.answered);
        });
        assert!(proven > heard, "proven from {proven}, heard at {heard}");
    }

    /// Many beats within half a tick must not prove each other: the leader may not have asked the follower in between.
    #[test]
    fn beats_within_half_a_tick_prove_nothing_newer() {
        let servers = Servers {
            down: vec![1],
            up: vec![1],
            phase: 50,
            cut: 340,
        };
        let (proven, heard) = run(&servers, 5, |liveness, heartbeat| {
            liveness.heartbeat(heartbeat, Duration::ZERO);
        });
        assert!(proven > heard, "proven from {proven}, heard at {heard}");
        let (proven, heard) = run(&servers, 5, |liveness, heartbeat| {
            liveness.heartbeat(heartbeat, Duration::from_nanos(HALF_TICK));
        });
        assert!(proven <= heard, "proven from {proven}, heard at {heard}");
    }

    /// What a holder may count on at the worst moment: just before the next beat is answered.
    #[test]
    fn proof_of_held_session_is_at_most_a_fifth_of_it_old() {
        let (session, moment) = (Duration::from_secs(10), BootInstant::from_nanos);
        let (pause, half_tick) = (
            heartbeat_interval(session, true),
            half_tick(Duration::from_secs(4)),
        );
        let mut liveness = Liveness::started(moment(0), moment(0));
        for _ in 0..40 {
            let next = liveness.next_heartbeat(pause);
            let age = next.duration_since(liveness.valid_from());
            assert!(
                age <= half_tick + 2 * pause && age <= session / 5,
                "{age:?}"
            );
            liveness.heartbeat(
                Beat {
                    begun: next,
                    asked: next,
                    answered: next,
                },
                half_tick,
            );
        }
    }
}
