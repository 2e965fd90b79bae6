//! Which path of a script a request takes, and what a server without memory does.

use std::time::Duration;

use lab_redis_model::Reply;
use proptest::prelude::*;

use super::server::{ModelServer, Paths, claim, liveness, request};
use crate::queue::messages::{EnterMode, EnterRequest, Nonce};
use crate::queue::record::LivenessRef;
use leasehold_core::store::{Claim, Share};

const LEASE: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(5);
/// Enough for a holder, the next waiter, the one behind it, and one more.
const CLAIMS: u8 = 4;
/// The longest lease of a client that waits after a failover, in milliseconds.
const LONGEST_LEASE: &str = "40000";

/// One step of a client that has the claim of this number.
#[derive(Clone, Debug)]
enum Step {
    Enter {
        number: u8,
        mode: EnterMode,
        /// By how much the client's hint exceeds the time of the server, in microseconds.
        hint_ahead: Option<u64>,
    },
    Leave(u8),
    Renew(u8),
    Connect(u8),
    Disconnect(u8),
    Pass(Duration),
}

/// What the clients have in common in one run, and the share of each claim.
#[derive(Clone, Debug)]
struct Plan {
    shares: Vec<Share>,
    /// How many tokens each claim reserves.
    reserved: Vec<u32>,
    has_crash_detection: bool,
    waits_after_failover: bool,
    steps: Vec<Step>,
}

fn plans() -> impl Strategy<Value = Plan> {
    let shares = prop_oneof![
        2 => Just(vec![Share::MUTEX]),
        1 => Just(vec![Share::MUTEX, Share::WRITER, Share::READER]),
        1 => Just(vec![2, 1].into_iter().map(|n| Share::slots(n, 2).expect("in range")).collect()),
    ];
    let shares = shares.prop_flat_map(|shares| {
        prop::collection::vec(prop::sample::select(shares), usize::from(CLAIMS))
    });
    let reserved = prop::collection::vec(prop::sample::select(vec![0, 0, 3]), usize::from(CLAIMS));
    let steps = prop::collection::vec(steps(), 1..30);
    (
        shares,
        reserved,
        any::<bool>(),
        prop::bool::weighted(0.2),
        steps,
    )
        .prop_map(
            |(shares, reserved, has_crash_detection, waits_after_failover, steps)| Plan {
                shares,
                reserved,
                has_crash_detection,
                waits_after_failover,
                steps,
            },
        )
}

fn steps() -> impl Strategy<Value = Step> {
    let number = || 0..CLAIMS;
    let mode = prop::sample::select(vec![
        EnterMode::Queue,
        EnterMode::Queue,
        EnterMode::Queue,
        EnterMode::TryNow,
        EnterMode::Refresh,
        EnterMode::Poll,
    ]);
    let hint_ahead =
        prop::sample::select(vec![None, None, None, Some(1_000_000), Some(60_000_000)]);
    let time = prop::sample::select(vec![1, 1_000, 4_000_000, 9_999_999, 30_000_000]);
    prop_oneof![
        8 => (number(), mode, hint_ahead).prop_map(|(number, mode, hint_ahead)| Step::Enter {
            number,
            mode,
            hint_ahead,
        }),
        5 => number().prop_map(Step::Leave),
        2 => number().prop_map(Step::Renew),
        1 => number().prop_map(Step::Connect),
        1 => number().prop_map(Step::Disconnect),
        3 => time.prop_map(|micros| Step::Pass(Duration::from_micros(micros))),
    ]
}

impl Plan {
    fn start(&self, paths: Paths) -> ModelServer {
        let mut server =
            ModelServer::with(paths, self.waits_after_failover.then_some(LONGEST_LEASE));
        for number in 0..CLAIMS {
            server.subscribe(u64::from(number), "alive", number);
        }
        server
    }

    fn claim(&self, number: u8) -> Claim {
        let at = usize::from(number);
        let mut claim = claim(number, LEASE);
        claim.share = self.shares[at];
        claim.reserved = self.reserved[at];
        claim
    }

    fn link(&self, number: u8) -> LivenessRef {
        liveness(number, 1, self.has_crash_detection.then_some(GRACE))
    }

    /// Does a step; returns the reply.
    fn step(&self, server: &mut ModelServer, step: &Step, fresh: u8) -> Option<Reply> {
        match *step {
            Step::Enter {
                number,
                mode,
                hint_ahead,
            } => {
                let claim = self.claim(number);
                let is_fast = !self.waits_after_failover && claim.reserved == 0;
                return Some(server.send_enter(&EnterRequest {
                    // The slow path has no proposals, so this one is of the server's clock.
                    proposal: u64::from(is_fast && claim.share.is_whole()),
                    highest_token: hint_ahead.map_or(0, |ahead| server.now + ahead),
                    nonce: Nonce(fresh.into()),
                    ..request(&claim, mode, self.link(number))
                }));
            }
            Step::Leave(number) => return Some(server.send_leave(number)),
            Step::Renew(number) => {
                return Some(server.send_renew(&self.claim(number), &self.link(number)));
            }
            Step::Connect(number) => server.subscribe(u64::from(number), "alive", number),
            Step::Disconnect(number) => server.disconnect(u64::from(number)),
            Step::Pass(time) => server.pass(time),
        }
        None
    }
}

proptest! {
    /// A server without memory refuses whoever enters. Holders renew and leave as before, and hand
    /// over to the next waiter.
    #[test]
    fn server_without_memory_renews_and_releases(plan in plans()) {
        let mut server = plan.start(Paths::Both);
        for (step, fresh) in plan.steps.iter().zip(1..) {
            if matches!(step, Step::Leave(_) | Step::Renew(_)) {
                let mut full = server.clone();
                full.fill();
                let replies = [&mut server, &mut full].map(|server| plan.step(server, step, fresh));
                prop_assert_eq!(&replies[0], &replies[1], "{:?}", step);
                prop_assert_eq!(server.take_pushes(), full.take_pushes(), "{:?}", step);
                prop_assert_eq!(server.contents(), full.contents(), "{:?}", step);
            } else {
                plan.step(&mut server, step, fresh);
            }
        }
    }
}

/// Most requests need no code of the queue: those about a lock that nobody else uses, and those of
/// waiters behind the first one.
#[test]
fn usual_requests_take_the_fast_paths() {
    let plan = Plan {
        shares: vec![Share::MUTEX; usize::from(CLAIMS)],
        reserved: vec![0; usize::from(CLAIMS)],
        has_crash_detection: true,
        waits_after_failover: false,
        steps: Vec::new(),
    };
    let enter = |number| Step::Enter {
        number,
        mode: EnterMode::Queue,
        hint_ahead: None,
    };
    let pass = || Step::Pass(LEASE / 4);

    let mut server = plan.start(Paths::Both);
    for (paths, step) in [
        (Paths::Slow, enter(0)),
        (Paths::Fast, Step::Leave(0)),
        (Paths::Fast, pass()),
        (Paths::Fast, enter(0)),
        (Paths::Fast, pass()),
        (Paths::Fast, Step::Renew(0)),
        (Paths::Slow, enter(1)),
        (Paths::Fast, enter(2)),
        (Paths::Fast, enter(3)),
        (Paths::Fast, Step::Leave(0)),
        (Paths::Fast, enter(0)),
        (Paths::Fast, Step::Leave(1)),
        (Paths::Fast, pass()),
        (Paths::Fast, Step::Leave(2)),
        (Paths::Fast, Step::Leave(3)),
        (Paths::Fast, Step::Renew(0)),
        (Paths::Fast, Step::Leave(0)),
    ] {
        server.paths = paths;
        let reply = plan.step(&mut server, &step, 0);
        assert!(
            !matches!(reply, Some(Reply::Error(_))),
            "{step:?}: {reply:?}"
        );
    }
}
