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
//! So a session is proven by *beats*. Half a tick or more after the last answered write a `sync` is asked, and when it is
//! answered another write:
//!
//! ```text
//!  write A ──answered──► half a tick ──► sync B ──answered──► write C ──answered──► proven from A
//! ```
//!
//! Between A and B the leader has asked the follower whom it has heard of. What two servers tell each other arrives in order:
//! the leader's question came to the follower before the answer to B, and the follower's word about A came to the leader
//! before C. So the leader has heard of the session after A was sent. And C was written by a majority, so whoever leads
//! later has come to lead after A was sent, and lets every session live for its timeout from then.

use std::time::Duration;

use crate::clock::Moment;

/// From when on the timeout of a session certainly ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proof {
    from: Moment,
    /// The last answered write: when it was asked, and when its answer was there.
    asked: Moment,
    answered: Moment,
}

impl Proof {
    /// A session that was just begun: a write too, of which the leader has heard.
    pub(super) fn begun(asked: Moment, answered: Moment) -> Self {
        Self { from: asked, asked, answered }
    }

    pub(super) fn from(self) -> Moment {
        self.from
    }

    /// When the next beat may begin.
    pub(super) fn next(self, pause: Duration) -> Moment {
        self.answered.after(pause)
    }

    /// A beat that was answered: a `sync` asked not before [`next`](Self::next), and a write after its answer.
    pub(super) fn beat(self, asked: Moment, answered: Moment) -> Self {
        Self { from: self.asked, asked, answered }
    }
}

/// How long to wait between beats: half a tick at least, and ZooKeeper has no session shorter than two ticks unless it is
/// told to.
pub(super) fn pause(timeout: Duration) -> Duration {
    timeout / 4
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
        fn heard(&self, asked: &[u64]) -> u64 {
            let mut heard = 0;
            let mut before = 0;
            for ping in self.pings() {
                let at_follower = in_order(&self.down, ping);
                let at_leader = in_order(&self.up, at_follower);
                if at_leader >= self.cut {
                    break;
                }
                if asked.iter().any(|asked| (before..at_follower).contains(asked)) {
                    heard = at_leader;
                }
                before = at_follower;
            }
            heard
        }

        /// When a question to the leader, asked at the follower, is answered there; `None` if it never is.
        fn through_leader(&self, asked: u64) -> Option<u64> {
            let at_leader = in_order(&self.up, asked);
            (at_leader < self.cut).then(|| in_order(&self.down, at_leader)).filter(|back| *back < self.cut)
        }
    }

    /// Beats until the follower is cut off; what is proven then by `beat`, and when the leader really heard last.
    fn run(servers: &Servers, beat: impl Fn(Proof, Moment, Moment) -> Proof) -> (u64, u64) {
        let moment = Moment::from_nanos;
        let mut proof = Proof::begun(moment(0), moment(0));
        let mut asked = vec![0];
        loop {
            let sync = proof.next(Duration::from_nanos(HALF_TICK)).as_nanos();
            asked.push(sync);
            let Some(write) = servers.through_leader(sync) else { break };
            asked.push(write);
            let Some(answered) = servers.through_leader(write) else { break };
            proof = beat(proof, moment(write), moment(answered));
        }
        (proof.from().as_nanos(), servers.heard(&asked))
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
        fn the_leader_has_heard_since_what_is_proven(servers in servers()) {
            let (proven, heard) = run(&servers, Proof::beat);
            prop_assert!(proven <= heard, "proven from {proven}, heard at {heard}");
        }
    }

    /// What an answer seems to show: that the leader has heard of the question.
    #[test]
    fn counting_from_the_last_answer_would_be_wrong() {
        let servers = Servers { down: vec![1], up: vec![1], phase: 50, cut: 340 };
        let (proven, heard) = run(&servers, |_, asked, answered| Proof::begun(asked, answered));
        assert!(proven > heard, "proven from {proven}, heard at {heard}");
    }
}
