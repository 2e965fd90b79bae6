//! Waiting in the queue, and the progress messages meanwhile.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::sandbox::{Sandbox, until};

#[test]
fn wait_zero_on_a_held_lock_exits_75() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("a", &["--label", "the first"]);
    let printed = "leasehold: a was not granted immediately: held by leasehold[";
    sandbox
        .done(&["run", "a", "--wait", "0", "--", "echo", "ran"])
        .assert(75, "", printed);
    sandbox
        .done(&["run", "a", "--wait", "0", "--", "echo", "ran"])
        .assert(75, "", "(the first) for ");
    sandbox
        .done(&["run", "a", "--wait", "0", "--quiet", "--", "echo", "ran"])
        .assert(75, "", "");
    assert_eq!(holder.end().code(), 0);
}

#[test]
fn wait_timeout_exits_75() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("a", &[]);
    let begun = Instant::now();
    sandbox
        .done(&["run", "a", "--wait", "200ms", "--", "echo", "ran"])
        .assert(75, "", "not granted within 200ms");
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert!(sandbox.waiters("a").is_empty());
    assert_eq!(holder.end().code(), 0);
}

#[test]
fn waiting_run_prints_position_and_grant() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("a", &["--label", "night\nly"]);
    let first = sandbox.waiter(&["run", "a", "--quiet", "--", "true"]);
    let mut second = sandbox.waiter(&["run", "a", "-w", "10m", "--", "echo", "ran"]);
    let output = second.wait_for_output("waiting");
    assert!(
        output.starts_with("leasehold: waiting for a: ")
            && output.contains("s of 10m, 2nd in the queue, held by leasehold["),
        "{output}"
    );
    assert!(output.contains("(night\\nly) for "), "{output}");
    assert_eq!(holder.end().code(), 0);
    first.wait().assert(0, "", "");
    second
        .wait()
        .assert(0, "ran\n", "leasehold: a granted after ");
}

/// Shows G-37.
#[test]
fn signal_makes_waiter_leave_the_queue() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("a", &[]);
    for signal in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGUSR1,
    ] {
        let waiter = sandbox.waiter(&["run", "a", "--quiet", "--", "echo", "ran"]);
        waiter.signal(signal);
        waiter.wait().assert_signal(signal, "");
        assert!(sandbox.waiters("a").is_empty(), "{signal}");
    }
    assert_eq!(holder.end().code(), 0);
}

#[test]
fn killed_waiter_is_skipped() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("a", &[]);
    let dead = sandbox.waiter(&["run", "a", "--", "echo", "ran"]);
    let next = sandbox.waiter(&["run", "a", "--wait", "30s", "--", "echo", "ran"]);
    dead.signal(Signal::SIGKILL);
    dead.wait();
    assert_eq!(holder.end().code(), 0);
    assert_eq!(next.wait().out, "ran\n");
    until("the queue is empty", || sandbox.is_free("a"));
}
