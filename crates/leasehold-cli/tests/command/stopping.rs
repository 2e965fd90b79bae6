//! A lock that is lost, broken, limited, or kept longer than the command.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::place::{Place, Started, is_alive, until};

/// Ends the hold of whoever holds `a`.
fn break_a(place: &Place) {
    let token = place.holders("a")[0]["token"].to_string();
    let done = place.done(&["break", "a", "--token", &token]);
    assert_eq!(done.code(), 0, "{done:?}");
    assert!(done.out.starts_with(&format!("broke the hold of a with token {token}: leasehold[")), "{done:?}");
    assert!(done.out.contains("the lock is free for the next when that process lets go"), "{done:?}");
}

/// A run whose command writes its number and then sleeps, and cleans up on TERM if asked to.
fn sleeper(place: &Place, terms: &[&str], on_term: &str) -> Started {
    let line = format!("trap {on_term} TERM; echo $$ > pid; while :; do sleep 0.01; done");
    let run = place.started(&[&["run", "a"], terms, &["--", "sh", "-c", &line]].concat());
    place.pid("pid");
    run
}

#[test]
fn a_broken_lock_ends_the_command_and_then_the_next_holds() {
    let place = Place::new();
    let run = sleeper(&place, &[], "'echo cleaned up > said; exit 0'");
    let next = place.waiter(&["run", "a", "--quiet", "--", "cat", "said"]);
    break_a(&place);
    run.ended().assert(76, "", "leasehold: lost a: the store no longer has the claim");
    next.ended().assert(0, "cleaned up\n", "");
}

#[test]
fn a_command_that_ignores_term_is_killed_after_the_grace() {
    let place = Place::new();
    let run = sleeper(&place, &["--grace", "300ms"], "''");
    let (command, begun) = (place.pid("pid"), Instant::now());
    break_a(&place);
    let done = run.ended();
    done.assert(76, "", "sending TERM to the command, and KILL in 300ms");
    assert!(done.err.contains("the command has not ended; sending KILL"), "{done:?}");
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert!(!is_alive(command));
}

#[test]
fn what_a_lost_command_leaves_behind_is_killed_too() {
    let place = Place::new();
    let line = "(trap '' TERM; sleep 1000) & echo $! > pid; wait";
    let run = place.started(&["run", "a", "--grace", "200ms", "--", "sh", "-c", line]);
    let grandchild = place.pid("pid");
    break_a(&place);
    assert_eq!(run.ended().code(), 76);
    until("the grandchild is gone", || !is_alive(grandchild));
}

#[test]
fn on_lost_kill_does_not_ask() {
    let place = Place::new();
    let run = sleeper(&place, &["--on-lost", "kill"], "'echo heard > said; exit 0'");
    break_a(&place);
    run.ended().assert(76, "", "sending KILL to the command");
    assert_eq!(place.read("said"), "");
}

#[test]
fn on_lost_ignore_lets_it_run_on_but_does_not_hide_it() {
    let place = Place::new();
    let mut run = place.holder("a", &["--on-lost", "ignore"]);
    break_a(&place);
    run.until_says("the command runs on without the lock");
    assert_eq!(run.end().code(), 76);
}

#[test]
fn max_hold_and_a_fixed_lease_end_the_command_in_time() {
    let place = Place::new();
    for terms in [&["--max-hold", "500ms"][..], &["--fixed", "--lease", "500ms"]] {
        let begun = Instant::now();
        let done = place.done(&[&["run", "a"], terms, &["--", "sleep", "1000"]].concat());
        done.assert(76, "", "leasehold: losing a: its time is about to end; sending TERM");
        // Stopping begins a grace before the end, and the grace is a quarter here.
        assert!(begun.elapsed() >= Duration::from_millis(250), "{:?}", begun.elapsed());
    }
    place.done(&["run", "a", "--max-hold", "1h", "--", "echo", "in time"]).assert(0, "in time\n", "");
}

#[test]
fn a_lease_that_is_renewed_ends_nothing() {
    let place = Place::new();
    place.done(&["run", "a", "--lease", "100ms", "--", "sleep", "0.5"]).assert(0, "", "");
}

#[test]
fn hold_at_least_keeps_the_lock_after_the_command() {
    let place = Place::new();
    let begun = Instant::now();
    place.done(&["run", "a", "--hold-at-least", "400ms", "--", "sh", "-c", "exit 3"]).assert(3, "", "");
    assert!(begun.elapsed() >= Duration::from_millis(400));

    let run = place.started(&["run", "a", "--hold-at-least", "1h", "--", "sh", "-c", "echo $$ > pid"]);
    let command = place.pid("pid");
    until("the command has ended", || !is_alive(command));
    place.done(&["run", "a", "--wait", "0", "--", "true"]).assert(75, "", "held by");
    until("a signal ends the rest", || {
        run.signal(Signal::SIGTERM);
        place.is_free("a")
    });
    run.ended().assert(0, "", "");
}

#[test]
fn hold_at_least_says_if_it_was_broken() {
    let place = Place::new();
    let run = place.started(&["run", "a", "--hold-at-least", "1h", "--", "sh", "-c", "echo $$ > pid"]);
    let command = place.pid("pid");
    until("the command has been waited for", || !std::path::Path::new(&format!("/proc/{command}")).exists());
    break_a(&place);
    run.ended().assert(76, "", "leasehold: cannot release \"a\"");
}

/// A process that has much memory to give back takes a while to die of KILL. The lock is released after that.
fn lost_lock_is_released_when_whole_group_is_gone(terms: &[&str]) {
    let place = Place::new();
    let line = "exec > /dev/null 2>&1; (trap '' TERM; (head -c 400m /dev/zero; sleep 1000) | tail -n 1 > /dev/null) & \
                until [ -s pid ]; do pgrep -g $$ -x tail > pid; sleep 0.01; done; \
                until [ $(ps -o rss= -p $(cat pid)) -gt 300000 ]; do sleep 0.01; done; \
                touch grown; sleep 1000";
    let run = place.started(&[&["run", "a"], terms, &["--", "sh", "-c", line]].concat());
    until("the process has its memory", || place.path("grown").exists());
    let grandchild = place.pid("pid");

    break_a(&place);
    assert_eq!(run.ended().code(), 76);
    assert!(!is_alive(grandchild), "the lock was released while a process of the command still ran");
}

#[test]
fn lost_lock_is_released_when_whole_group_is_gone_on_lost_kill() {
    lost_lock_is_released_when_whole_group_is_gone(&["--on-lost", "kill"]);
}

#[test]
fn lost_lock_is_released_when_whole_group_is_gone_after_grace() {
    lost_lock_is_released_when_whole_group_is_gone(&["--grace", "100ms"]);
}
