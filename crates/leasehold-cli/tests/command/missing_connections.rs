//! What the commands report of claims on Redis whose clients have crashed. The runs have no watchdog
//! that would release their locks.

use nix::sys::signal::Signal;

use crate::sandbox::{Sandbox, until};
use crate::servers::end_of_a_killed_run_is_explained;

#[test]
fn claim_without_connection_is_marked() {
    let sandbox = Sandbox::on_redis();
    let holder = sandbox.holder("a", &["--on-lost", "ignore"]);
    let waiter = sandbox.waiter(&["run", "a", "--", "true"]);
    assert_eq!(sandbox.holders("a")[0]["connected"], true);
    assert_eq!(sandbox.waiters("a")[0]["connected"], true);

    for (claims, run) in [("holders", holder), ("waiters", waiter)] {
        run.signal(Signal::SIGKILL);
        until("its connection is missing", || {
            sandbox.show("a")[claims][0]["connected"] == false
        });
    }
    let shown = sandbox.done(&["show", "a"]).out;
    assert_eq!(
        shown.matches(", connection missing, ").count(),
        2,
        "{shown}"
    );
    sandbox.done(&["run", "-n", "a", "--", "true"]).assert(
        75,
        "",
        ", connection missing; -w 15s outlasts its crash grace (10s); see `leasehold show a`",
    );
}

/// They report what an acquire would get, which passes over the crashed waiter.
#[test]
fn lock_with_a_crashed_waiter_alone_is_free() {
    let sandbox = Sandbox::on_redis();
    let holder = sandbox.holder("a", &[]);
    let waiter = sandbox.waiter(&["run", "a", "--", "true"]);
    let wait = sandbox.started(&["wait", "a", "-w", "20"]);
    waiter.signal(Signal::SIGKILL);
    until("the waiter's connection is missing", || {
        sandbox.waiters("a")[0]["connected"] == false
    });
    assert_eq!(sandbox.done(&["show", "--exit-code", "a"]).code(), 1);
    holder.end().assert(0, "", "");

    wait.wait().assert(0, "", "");
    sandbox.done(&["wait", "-n", "a"]).assert(0, "", "");
    let shown = sandbox.done(&["show", "--exit-code", "a"]);
    assert_eq!(shown.code(), 0);
    assert!(shown.out.starts_with("a: free"), "{shown:?}");
    sandbox.done(&["ls"]).assert_names(&[]);
    sandbox
        .done(&["run", "-n", "a", "--", "true"])
        .assert(0, "", "");
}

/// Shows G-20.
#[test]
fn lock_of_crashed_holder_is_granted_to_a_waiter_as_its_refusal_says() {
    let mut sandbox = Sandbox::on_redis();
    sandbox.set("crash-grace=2s");
    let holder = sandbox.holder("a", &["--lease", "1h", "--on-lost", "ignore"]);
    holder.signal(Signal::SIGKILL);
    until("the connection is missing", || {
        sandbox.holders("a")[0]["connected"] == false
    });

    let refused = sandbox.done(&["run", "-n", "a", "--", "true"]);
    let remedy =
        ", connection missing; -w 3s outlasts its crash grace (2s); see `leasehold show a`";
    refused.assert(75, "", remedy);
    let waited = sandbox.done(&["run", "-qw", "30s", "a", "--", "echo", "ran"]);
    waited.assert(0, "ran\n", "");
}

#[test]
fn crash_without_a_watchdog_is_explained() {
    let mut sandbox = Sandbox::on_redis();
    sandbox.set("crash-grace=2s");
    let options = ["--on-lost", "ignore"];
    end_of_a_killed_run_is_explained(&sandbox, &options, "connection missing");
}
