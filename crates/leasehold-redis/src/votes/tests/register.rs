//! A master of Redlock without a clock, and the comparison with its scripts.

use std::collections::HashMap;

use lab_redis_model::{Reply, Server};
use proptest::prelude::*;

use crate::votes::record::VoteOutcome;

/// What one master remembers of one lock. The end of a lease is an event.
///
/// ```text
/// free ──vote: token > last──► held(token, claim)
///   ▲                               │
///   └──leave, lease ends────────────┘      last never falls
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct VoteRegister<C> {
    /// The master gives no vote to a token up to this one.
    pub(super) last_token: u64,
    /// The token and the claim that have this master's vote.
    pub(super) held: Option<(u64, C)>,
}

impl<C> Default for VoteRegister<C> {
    fn default() -> Self {
        Self {
            last_token: 0,
            held: None,
        }
    }
}

impl<C: Copy + PartialEq> VoteRegister<C> {
    /// Requests this vote for a claim and a token, or renews it.
    pub(super) fn vote(&mut self, claim: C, token: u64) -> VoteOutcome {
        match self.held {
            Some((held, by)) if by != claim => return VoteOutcome::Held(held),
            Some((held, _)) if held == token => return VoteOutcome::Granted,
            _ => {}
        }
        if token <= self.last_token {
            return VoteOutcome::Stale(self.last_token);
        }
        *self = Self {
            last_token: token,
            held: Some((token, claim)),
        };
        VoteOutcome::Granted
    }

    /// Takes this vote back from a claim. Returns whether the claim had it.
    ///
    /// It raises `last_token` to `highest`, so a late vote request of the claim with a token up to
    /// `highest` is refused.
    pub(super) fn leave(&mut self, claim: C, highest: u64) -> bool {
        let had = self
            .held
            .is_some_and(|(token, by)| by == claim && token <= highest);
        if had {
            self.held = None;
        }
        self.last_token = self.last_token.max(highest);
        had
    }

    /// Ends the lease of the claim that has the vote.
    pub(super) fn expire(&mut self) {
        self.held = None;
    }
}

const VOTE: &str = include_str!("../redlock/lua/vote.lua");
const LEAVE: &str = include_str!("../redlock/lua/leave.lua");
const DAY: u64 = 24 * 60 * 60 * 1_000;
const KEYS: [&str; 3] = [
    "leasehold:redlock:{a}",
    "leasehold:redlock:mark",
    "leasehold:redlock:{a}:waits",
];

#[derive(Clone, Copy, Debug)]
enum Step {
    Vote { claim: u8, token: u64 },
    Leave { claim: u8, highest: u64 },
    Expire,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let claim = 0..3u8;
    let token = 1..9u64;
    let step = prop_oneof![
        5 => (claim.clone(), token.clone()).prop_map(|(claim, token)| Step::Vote { claim, token }),
        3 => (claim, token).prop_map(|(claim, highest)| Step::Leave { claim, highest }),
        1 => Just(Step::Expire),
    ];
    prop::collection::vec(step, 1..40)
}

fn id(claim: u8) -> String {
    format!("{claim:022}")
}

/// Returns a token that a floating-point number cannot represent exactly.
fn text(token: u64) -> String {
    format!("{:019}", 1_795_268_260_247_958_000 + token)
}

fn small(token: &str) -> u64 {
    token
        .parse::<u64>()
        .expect("digits")
        .saturating_sub(1_795_268_260_247_958_000)
}

fn vote(server: &mut Server, claim: u8, token: u64) -> VoteOutcome {
    let record = format!(
        "{0}H{0}{1}{2} M 30000 0 1 h p l",
        text(token),
        id(claim),
        "c".repeat(11)
    );
    let life = (DAY + 30_000).to_string();
    let requested = [
        "EVAL", VOTE, "3", KEYS[0], KEYS[1], KEYS[2], &record, &life, "", "", "",
    ];
    let reply = reply_text(server, &requested);
    assert_eq!(reply[50..72], id(claim), "{reply}");
    let last = small(&reply[2..21]);
    let held = small(&reply[21..40]);
    match &reply[..1] {
        "G" => VoteOutcome::Granted,
        "H" => VoteOutcome::Held(held),
        _ => VoteOutcome::Stale(last),
    }
}

fn leave(server: &mut Server, claim: u8, highest: u64) -> bool {
    let requested = [
        "EVAL",
        LEAVE,
        "2",
        KEYS[0],
        KEYS[2],
        &id(claim),
        &text(highest),
        &"c".repeat(11),
        "",
        "",
    ];
    let reply = reply_text(server, &requested);
    assert_eq!(reply[1..], id(claim));
    reply.starts_with('1')
}

fn server_register(server: &mut Server) -> VoteRegister<u8> {
    if execute(server, &["GET", KEYS[0]]) == Reply::Nil {
        return VoteRegister::default();
    }
    let state = reply_text(server, &["GET", KEYS[0]]);
    let life = execute(server, &["PTTL", KEYS[0]]);
    let is_over = matches!(life, Reply::Int(left) if left <= DAY.cast_signed());
    let held = &state[19..20] == "H" && !is_over;
    let claim = || state[39..61].parse().expect("digits");
    VoteRegister {
        last_token: small(&state[..19]),
        held: held.then(|| (small(&state[20..39]), claim())),
    }
}

/// Executes a request at a time that does not pass.
fn execute(server: &mut Server, words: &[&str]) -> Reply {
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    server.execute(0, 1_750_000_000_000_000, &words)
}

fn reply_text(server: &mut Server, words: &[&str]) -> String {
    match execute(server, words) {
        Reply::Bytes(text) => String::from_utf8(text).expect("the scripts reply with texts"),
        reply => panic!("{words:?} has the reply {reply:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 128,
        max_shrink_iters: 500,
        ..ProptestConfig::default()
    })]
    /// Shows G-04.
    #[test]
    fn vote_scripts_match_the_model(steps in steps()) {
        let mut server = Server::new("0123456789");
        let mut register = VoteRegister::default();
        for step in steps {
            match step {
                Step::Vote { claim, token } => {
                    let outcome = vote(&mut server, claim, token);
                    prop_assert_eq!(outcome, register.vote(claim, token), "{:?}", step);
                }
                Step::Leave { claim, highest } => {
                    let had = leave(&mut server, claim, highest);
                    prop_assert_eq!(had, register.leave(claim, highest), "{:?}", step);
                }
                Step::Expire => {
                    // A lease has ended when its key has less than a day left. A key that does
                    // not exist is not created.
                    execute(&mut server, &["PEXPIRE", KEYS[0], &(DAY - 1).to_string()]);
                    register.expire();
                }
            }
            prop_assert_eq!(server_register(&mut server), register, "{:?}", step);
        }
    }
}

/// A vote request that arrives after the claim has left finds its token stale.
///
/// Shows G-04.
#[test]
fn requests_in_any_order_leave_no_vote() {
    let mut server = Server::new("0123456789");
    let mut left: HashMap<u8, u64> = HashMap::new();
    for (claim, token) in [(0u8, 5u64), (1, 6), (2, 9)] {
        assert!(!leave(&mut server, claim, token));
        left.insert(claim, token);
        assert_eq!(
            vote(&mut server, claim, token),
            VoteOutcome::Stale(token),
            "the request arrived after the leave"
        );
    }
    assert_eq!(server_register(&mut server).held, None);
}
