//! Locks that are lost, broken, limited in time, or held longer than the command runs.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::sandbox::{Sandbox, Started, is_alive, until};

/// Breaks the only hold of `a`.
fn break_a(sandbox: &Sandbox) {
    let token = sandbox.token("a");
    let done = sandbox.done(&["break", "a", "--token", &token]);
    assert_eq!(done.code(), 0, "{done:?}");
    assert!(
        done.out.starts_with(&format!(
            "broke the hold of a with token {token}: leasehold["
        )),
        "{done:?}"
    );
    assert!(
        done.out
            .contains("the next waiter is granted the lock when that process releases it"),
        "{done:?}"
    );
}

/// Starts a command that writes its process id, then sleeps, and runs `on_term` on TERM.
fn sleeper(sandbox: &Sandbox, options: &[&str], on_term: &str) -> Started {
    let line = format!("trap {on_term} TERM; echo $$ > pid; while :; do sleep 0.01; done");
    let run = sandbox.started(&[&["run", "a"], options, &["--", "sh", "-c", &line]].concat());
    sandbox.pid("pid");
    run
}

#[test]
fn broken_lock_ends_the_command_before_the_next_grant() {
    let sandbox = Sandbox::new();
    let run = sleeper(&sandbox, &[], "'echo cleaned up > log; exit 0'");
    let next = sandbox.waiter(&["run", "a", "--quiet", "--", "cat", "log"]);
    break_a(&sandbox);
    let done = run.wait();
    done.assert(76, "", "leasehold: lost a: ");
    let reports = done
        .err
        .lines()
        .filter(|line| line.starts_with("leasehold:"));
    assert_eq!(reports.count(), 1, "the loss is reported once: {done:?}");
    next.wait().assert(0, "cleaned up\n", "");
}

#[test]
fn command_ignoring_term_is_killed_after_the_given_time() {
    let sandbox = Sandbox::new();
    let run = sleeper(&sandbox, &["--kill-after", "300ms"], "''");
    let command = sandbox.pid("pid");
    let begun = Instant::now();
    break_a(&sandbox);
    let done = run.wait();
    done.assert(76, "", "sending TERM to the command, and KILL in 300ms");
    assert!(
        done.err
            .contains("the command has not ended after TERM; sending KILL"),
        "{done:?}"
    );
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert!(!is_alive(command));
}

#[test]
fn process_group_of_lost_command_is_killed() {
    let sandbox = Sandbox::new();
    let line = "(trap '' TERM; sleep 1000) & echo $! > pid; wait";
    let run = sandbox.started(&["run", "a", "--kill-after", "200ms", "--", "sh", "-c", line]);
    let grandchild = sandbox.pid("pid");
    break_a(&sandbox);
    assert_eq!(run.wait().code(), 76);
    until("the grandchild is gone", || !is_alive(grandchild));
}

#[test]
fn on_lost_kill_sends_only_sigkill() {
    let sandbox = Sandbox::new();
    let run = sleeper(
        &sandbox,
        &["--on-lost", "kill"],
        "'echo caught > log; exit 0'",
    );
    break_a(&sandbox);
    run.wait().assert(76, "", "sending KILL to the command");
    assert_eq!(sandbox.read("log"), "");
}

#[test]
fn on_lost_ignore_keeps_the_command_and_reports_the_loss() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.holder("a", &["--on-lost", "ignore"]);
    break_a(&sandbox);
    run.wait_for_output("the command runs on without the lock");
    assert_eq!(run.end().code(), 76);
}

#[test]
fn max_hold_ends_the_command_in_time() {
    let sandbox = Sandbox::new();
    let begun = Instant::now();
    let kinds = [&["a"][..], &["b", "--shared"], &["c", "--slots", "2"]];
    let runs = kinds.map(|kind| {
        let limit = ["--max-hold", "2s", "--quiet", "--", "sleep", "1000"];
        sandbox.started(&[&["run"], kind, &limit].concat())
    });
    for (run, name) in runs.into_iter().zip(["a", "b", "c"]) {
        let losing = format!("leasehold: losing {name}: its time is about to end; sending TERM");
        run.wait().assert(76, "", &losing);
        // Stopping begins early enough for KILL. Half of the hold is still left then.
        let took = begun.elapsed();
        assert!(took >= Duration::from_secs(1), "{name}: {took:?}");
    }
    sandbox
        .done(&["run", "a", "--max-hold", "1h", "--", "echo", "in time"])
        .assert(0, "in time\n", "");
}

#[test]
fn renewed_lease_does_not_end_the_command() {
    let sandbox = Sandbox::new();
    sandbox
        .done(&["run", "a", "--lease", "100ms", "--", "sleep", "0.5"])
        .assert(0, "", "");
}

#[test]
fn hold_at_least_keeps_the_lock_after_the_command() {
    let sandbox = Sandbox::new();
    let begun = Instant::now();
    sandbox
        .done(&[
            "run",
            "a",
            "--hold-at-least",
            "400ms",
            "--",
            "sh",
            "-c",
            "exit 3",
        ])
        .assert(3, "", "");
    assert!(begun.elapsed() >= Duration::from_millis(400));

    let run = sandbox.started(&[
        "run",
        "a",
        "--hold-at-least",
        "1h",
        "--",
        "sh",
        "-c",
        "echo $$ > pid",
    ]);
    let command = sandbox.pid("pid");
    until("the command has ended", || !is_alive(command));
    sandbox
        .done(&["run", "a", "--wait", "0", "--", "true"])
        .assert(75, "", "held by");
    until("a signal ends the rest", || {
        run.signal(Signal::SIGTERM);
        sandbox.is_free("a")
    });
    run.wait().assert(0, "", "");
}

#[test]
fn hold_at_least_reports_a_broken_lock() {
    let sandbox = Sandbox::new();
    let run = sandbox.started(&[
        "run",
        "a",
        "--hold-at-least",
        "1h",
        "--",
        "sh",
        "-c",
        "echo $$ > pid",
    ]);
    let command = sandbox.pid("pid");
    until("the command has been waited for", || {
        !std::path::Path::new(&format!("/proc/{command}")).exists()
    });
    break_a(&sandbox);
    run.wait().assert(76, "", "leasehold: cannot release \"a\"");
}

/// The kernel frees the memory of a killed process, which takes a while if it has much of it. The
/// lock is released only after that.
fn lost_lock_is_released_when_whole_group_is_gone(options: &[&str]) {
    let sandbox = Sandbox::new();
    let line = "exec > /dev/null 2>&1; \
                (trap '' TERM; (head -c 400m /dev/zero; sleep 1000) | tail -n 1 > /dev/null) & \
                until [ -s pid ]; do pgrep -g $$ -x tail > pid; sleep 0.01; done; \
                until [ $(ps -o rss= -p $(cat pid)) -gt 300000 ]; do sleep 0.01; done; \
                touch grown; sleep 1000";
    let run = sandbox.started(&[&["run", "a"], options, &["--", "sh", "-c", line]].concat());
    until("the process has its memory", || {
        sandbox.path("grown").exists()
    });
    let grandchild = sandbox.pid("pid");

    break_a(&sandbox);
    assert_eq!(run.wait().code(), 76);
    assert!(
        !is_alive(grandchild),
        "the lock was released while a process of the command still ran"
    );
}

#[test]
fn lost_lock_is_released_when_whole_group_is_gone_on_lost_kill() {
    lost_lock_is_released_when_whole_group_is_gone(&["--on-lost", "kill"]);
}

#[test]
fn lost_lock_is_released_when_whole_group_is_gone_after_term() {
    lost_lock_is_released_when_whole_group_is_gone(&["--kill-after", "100ms"]);
}
