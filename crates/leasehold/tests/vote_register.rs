//! Compares the scripts of Redlock with the rule that they implement.
#![cfg(feature = "redis")]
#![allow(missing_docs)]

use std::collections::HashMap;
use std::sync::OnceLock;

use lab_servers::{Redis, Reply};
use leasehold::modelled::voting::{VoteOutcome, VoteRegister};
use proptest::prelude::*;

const VOTE: &str = include_str!("../src/stores/redlock/lua/vote.lua");
const LEAVE: &str = include_str!("../src/stores/redlock/lua/leave.lua");
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

fn vote(server: &Redis, claim: u8, token: u64) -> VoteOutcome {
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
    let sent = server.command(&requested);
    let reply = sent.text();
    assert!(reply.len() == 72 && reply.ends_with(&id(claim)), "{reply}");
    let last = small(&reply[2..21]);
    let held = small(&reply[21..40]);
    match &reply[..1] {
        "G" => VoteOutcome::Granted,
        "H" => VoteOutcome::Held(held),
        _ => VoteOutcome::Stale(last),
    }
}

fn leave(server: &Redis, claim: u8, highest: u64) -> bool {
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
    let reply = server.command(&requested);
    assert_eq!(reply.text()[1..], id(claim));
    reply.text().starts_with('1')
}

fn server_register(server: &Redis) -> VoteRegister<u8> {
    let state = server.request(&["GET", KEYS[0]]);
    if state == Reply::Nil {
        return VoteRegister::default();
    }
    let state = state.text();
    let life = server.command(&["PTTL", KEYS[0]]).int();
    let held = &state[19..20] == "H" && life > DAY.cast_signed();
    let claim = || state[39..61].parse().expect("digits");
    VoteRegister {
        last_token: small(&state[..19]),
        held: held.then(|| (small(&state[20..39]), claim())),
    }
}

fn server() -> &'static Redis {
    static SERVER: OnceLock<Redis> = OnceLock::new();
    SERVER.get_or_init(Redis::start)
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
        let server = server();
        server.command(&["FLUSHALL"]);
        let mut register = VoteRegister::default();
        for step in steps {
            match step {
                Step::Vote { claim, token } => {
                    let outcome = vote(server, claim, token);
                    prop_assert_eq!(outcome, register.vote(claim, token), "{:?}", step);
                }
                Step::Leave { claim, highest } => {
                    let had = leave(server, claim, highest);
                    prop_assert_eq!(had, register.leave(claim, highest), "{:?}", step);
                }
                Step::Expire => {
                    // A lease has ended when its key has less than a day left. A key that does
                    // not exist is not created.
                    server.command(&["PEXPIRE", KEYS[0], &(DAY - 1).to_string()]);
                    register.expire();
                }
            }
            prop_assert_eq!(server_register(server), register, "{:?}", step);
        }
    }
}

/// A vote request that arrives after the claim has left finds its token stale.
///
/// Shows G-04.
#[test]
fn requests_in_any_order_leave_no_vote() {
    let server = Redis::start();
    let mut left: HashMap<u8, u64> = HashMap::new();
    for (claim, token) in [(0u8, 5u64), (1, 6), (2, 9)] {
        assert!(!leave(&server, claim, token));
        left.insert(claim, token);
        assert_eq!(
            vote(&server, claim, token),
            VoteOutcome::Stale(token),
            "the request arrived after the leave"
        );
    }
    assert_eq!(server_register(&server).held, None);
}
