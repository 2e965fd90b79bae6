//! Sessions whose server is cut off from the leader.

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
struct CutRun {
    /// The instant from which `Liveness` counts the session.
    valid_from: u64,
    /// The leader's last report of the session.
    last_report: u64,
}

impl CutRun {
    fn is_safe(&self) -> bool {
        self.valid_from <= self.last_report
    }
}

/// Sends heartbeats until the follower is cut off.
fn run(servers: &Servers, interval: u64, heartbeat: impl Fn(&mut Liveness, Heartbeat)) -> CutRun {
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
    CutRun {
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
    /// Shows G-12.
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

/// The leader may request a report only after it has replied to the `sync`. So the time until that
/// reply arrives proves nothing.
///
/// Shows G-12.
#[test]
fn slow_reply_to_a_sync_proves_no_newer_write() {
    let mut servers = Servers {
        down: vec![0; 16],
        up: vec![0; 16],
        phase: 39,
        cut: 160,
    };
    // The reply to the third heartbeat's `sync`, and the report after it.
    servers.down[12] = 25;
    servers.up[15] = 30;

    let outcome = run(&servers, 40, |liveness, heartbeat| {
        liveness.heartbeat(heartbeat, Duration::from_nanos(HALF_TICK));
    });
    assert!(outcome.is_safe(), "{outcome:?}");
}

/// The worst instant is just before the reply to the next heartbeat.
///
/// Shows G-24.
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
