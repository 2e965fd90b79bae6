//! In line, and what is said meanwhile.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::place::{Place, until};

#[test]
fn no_patience_is_75() {
    let place = Place::new();
    let holder = place.holder("a", &["--label", "the first"]);
    let told = "leasehold: a was not granted at once: held by leasehold[";
    place.done(&["run", "a", "--wait", "0", "--", "echo", "ran"]).assert(75, "", told);
    place.done(&["run", "a", "--wait", "0", "--", "echo", "ran"]).assert(75, "", "(the first) for ");
    place.done(&["run", "a", "--wait", "0", "--quiet", "--", "echo", "ran"]).assert(75, "", "");
    assert_eq!(holder.end().code(), 0);
}

#[test]
fn too_little_patience_is_75() {
    let place = Place::new();
    let holder = place.holder("a", &[]);
    let begun = Instant::now();
    place.done(&["run", "a", "--wait", "200ms", "--", "echo", "ran"]).assert(75, "", "not granted within 200ms");
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert!(place.waiters("a").is_empty());
    assert_eq!(holder.end().code(), 0);
}

#[test]
fn says_where_it_stands_and_when_it_is_granted() {
    let place = Place::new();
    let holder = place.holder("a", &["--label", "night\nly"]);
    let first = place.waiter(&["run", "a", "--quiet", "--", "true"]);
    let mut second = place.waiter(&["run", "a", "--", "echo", "ran"]);
    let said = second.until_says("waiting");
    assert!(said.starts_with("leasehold: waiting for a: 2nd in line, held by leasehold["), "{said}");
    assert!(said.contains("(night\\nly) for "), "{said}");
    assert_eq!(holder.end().code(), 0);
    first.ended().assert(0, "", "");
    second.ended().assert(0, "ran\n", "leasehold: a granted after ");
}

#[test]
fn a_signal_makes_it_leave_the_line() {
    let place = Place::new();
    let holder = place.holder("a", &[]);
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129), (Signal::SIGUSR1, 138)]
    {
        let waiter = place.waiter(&["run", "a", "--quiet", "--", "echo", "ran"]);
        waiter.signal(signal);
        waiter.ended().assert(code, "", "");
        assert!(place.waiters("a").is_empty(), "{signal}");
    }
    assert_eq!(holder.end().code(), 0);
}

#[test]
fn a_killed_waiter_is_passed_over() {
    let place = Place::new();
    let holder = place.holder("a", &[]);
    let dead = place.waiter(&["run", "a", "--", "echo", "ran"]);
    let next = place.waiter(&["run", "a", "--", "echo", "ran"]);
    dead.signal(Signal::SIGKILL);
    dead.ended();
    assert_eq!(holder.end().code(), 0);
    assert_eq!(next.ended().out, "ran\n");
    until("the line is empty", || place.is_free("a"));
}
