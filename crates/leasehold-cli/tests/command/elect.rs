//! The subcommand elect.

use nix::sys::signal::Signal;

use crate::sandbox::{Sandbox, Started, until};

const SLEEP: [&str; 3] = ["--", "sleep", "60"];

fn candidate(sandbox: &Sandbox, address: &str, command: &[&str]) -> Started {
    let options = ["elect", "a", "--address", address];
    sandbox.started(&[&options, command].concat())
}

fn until_leads(sandbox: &Sandbox, address: &str) {
    until(&format!("{address} leads"), || {
        let holders = sandbox.holders("a");
        holders.len() == 1 && holders[0]["label"] == address
    });
}

fn stop(candidate: Started, err_has: &str) {
    candidate.signal(Signal::SIGTERM);
    candidate.wait().assert_signal(Signal::SIGTERM, err_has);
}

/// Shows G-48.
#[test]
fn next_candidate_leads_after_the_leader_is_stopped() {
    let sandbox = Sandbox::new();
    let first = candidate(&sandbox, "one:1", &SLEEP);
    until_leads(&sandbox, "one:1");
    let first_token = sandbox.token("a");
    let second = candidate(&sandbox, "two:2", &SLEEP);
    until("the second waits", || sandbox.waiters("a").len() == 1);

    stop(first, "elected leader of a");
    until_leads(&sandbox, "two:2");
    let number = |token: &str| token.parse::<u64>().unwrap();
    assert!(number(&sandbox.token("a")) > number(&first_token));

    let mut waiting = candidate(&sandbox, "three:3", &SLEEP);
    waiting.wait_for_output("waiting for a");
    stop(waiting, "");
    until("the third has left", || sandbox.waiters("a").is_empty());
    stop(second, "elected leader of a");
    assert!(sandbox.is_free("a"));
}

#[test]
fn wait_after_a_term_is_as_long_as_it_has_lasted() {
    let sandbox = Sandbox::new();
    let mut first = candidate(&sandbox, "one:1", &["--", "sleep", "3"]);
    until_leads(&sandbox, "one:1");
    let second = candidate(&sandbox, "two:2", &SLEEP);
    let line = first.wait_for_output("waiting for a");
    let is_short = ["0s", "1s", "2s"]
        .iter()
        .any(|waited| line.contains(&format!("waiting for a: {waited}")));
    assert!(is_short, "{line}");
    drop((first, second));
}

/// A run of the same name, by mistake, is not a candidate.
#[test]
fn election_is_shown_with_leader_and_candidates() {
    for sandbox in [Sandbox::new(), Sandbox::on_redis()] {
        let leader = candidate(&sandbox, "one:1", &SLEEP);
        until_leads(&sandbox, "one:1");
        let mistaken = sandbox.waiter(&["run", "a", "--", "true"]);
        let second = candidate(&sandbox, "two:2", &SLEEP);
        until("the second waits", || sandbox.waiters("a").len() == 2);

        let shown = sandbox.show("a");
        assert_eq!(shown["kind"], "election");
        assert_eq!(shown["holders"][0]["candidate"], true);
        assert_eq!(shown["holders"][0]["program"], "leasehold");
        assert!(shown["waiters"][0].get("candidate").is_none(), "{shown}");
        let text = sandbox.done(&["show", "a"]).out;
        let rows: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_once(": "))
            .map(|(word, _)| word.trim())
            .collect();
        assert_eq!(rows, ["a", "leader", "waiting 1", "candidate 2"], "{text}");
        let listed = sandbox.done(&["ls"]).out;
        assert!(listed.contains("a     election  1 of 1  2 "), "{listed}");

        drop((mistaken, second));
        stop(leader, "elected leader of a");
    }
}

/// Shows G-48.
#[test]
fn candidate_campaigns_again_after_its_command_has_ended() {
    let sandbox = Sandbox::new();
    let terms = sandbox.path("terms");
    let terms = terms.display();
    // The first command ends by itself. The others handle the signals, except the last signal.
    let line = format!(
        "trap 'exit 0' USR1 USR2; echo $LEASEHOLD_TOKEN >> {terms}; \
         [ $(wc -l < {terms}) -lt 2 ] || while :; do sleep 0.01; done"
    );
    let candidate = candidate(&sandbox, "one:1", &["--", "sh", "-c", &line]);

    let until_terms = |count| {
        let what = format!("{count} terms");
        until(&what, || sandbox.read("terms").lines().count() >= count);
    };
    for (count, signal) in [(2, Signal::SIGUSR1), (3, Signal::SIGUSR2)] {
        until_terms(count);
        candidate.signal(signal);
    }
    until_terms(4);
    stop(candidate, "elected leader of a");
    let terms = sandbox.read("terms");
    let tokens = terms.lines().map(|token| token.parse::<u64>().unwrap());
    assert!(tokens.is_sorted_by(|one, next| one < next), "{terms}");
}

/// Programs use USR1 and USR2 for other requests, and only the one that leads has a program.
///
/// Shows G-48.
#[test]
fn user_signals_do_not_end_a_candidate_without_a_command() {
    let send_both = |candidate: &Started| {
        candidate.signal(Signal::SIGUSR1);
        candidate.signal(Signal::SIGUSR2);
    };
    let sandbox = Sandbox::new();
    let first = candidate(&sandbox, "one:1", &SLEEP);
    until_leads(&sandbox, "one:1");
    // The command of the third term lasts.
    let line = "echo >> terms; [ $(wc -l < terms) -lt 3 ] || exec sleep 60";
    let waiting = candidate(&sandbox, "two:2", &["-q", "--", "sh", "-c", line]);
    until("the second waits", || sandbox.waiters("a").len() == 1);
    send_both(&waiting);

    stop(first, "elected leader of a");
    for terms in 1..3 {
        let has_led = || sandbox.read("terms").lines().count() >= terms;
        until("its next term is over", || {
            has_led() && sandbox.is_free("a")
        });
        send_both(&waiting);
    }
    until("it leads again", || {
        sandbox.read("terms").lines().count() > 2
    });
    stop(waiting, "");
}

/// Shows G-48.
#[test]
fn candidate_campaigns_again_after_it_was_deposed() {
    let sandbox = Sandbox::new();
    let candidate = candidate(&sandbox, "one:1", &SLEEP);
    until_leads(&sandbox, "one:1");
    let token = sandbox.token("a");

    let broken = sandbox.done(&["break", "a", "--token", &token]);
    assert_eq!(broken.code(), 0, "{}", broken.err);
    until("it leads again", || {
        let holders = sandbox.holders("a");
        holders.len() == 1 && holders[0]["token"] != token.as_str()
    });
    stop(candidate, "elected leader of a");
}

/// Shows G-48.
#[test]
fn command_that_cannot_be_started_ends_the_candidature() {
    let sandbox = Sandbox::new();
    // A shell, env and nice report with the same codes that they cannot start a program.
    for (command, code) in [
        (&["./missing"][..], 127),
        (&["/"], 126),
        (&["sh", "-c", "./missing"], 127),
        (&["env", "/"], 126),
    ] {
        let options = ["elect", "a", "--address", "one:1", "--"];
        let done = sandbox.done(&[&options, command].concat());
        assert_eq!(done.code(), code, "{done:?}");
        assert!(sandbox.is_free("a"));
    }
    let help = sandbox.done(&["elect", "--help"]).out;
    let words: Vec<&str> = help.split_whitespace().collect();
    let documented = "cannot be started, or exits with 126 or 127 as a shell does then";
    assert!(words.join(" ").contains(documented), "{help}");
}

/// Shows G-48.
#[test]
fn election_without_tokens_or_address_is_refused() {
    let mut sandbox = Sandbox::on_redis();
    let without = ["elect", "a", "--address", "", "--", "true"];
    sandbox
        .done(&without)
        .assert(64, "", "--address has 1 to 255 bytes");

    sandbox.set("dialect=plain");
    let plain = ["elect", "a", "--address", "one:1", "--", "true"];
    sandbox
        .done(&plain)
        .assert(64, "", "an election needs tokens");
}
