//! Several names at once.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};

use crate::sandbox::{Sandbox, Started, until};

const BIN: &str = env!("CARGO_BIN_EXE_leasehold");

/// Shows G-39.
#[test]
fn run_of_several_names_holds_all_of_them() {
    let sandbox = Sandbox::new();
    let line = "echo $LEASEHOLD_NAME; echo $LEASEHOLD_TOKEN; echo $LEASEHOLD_TOKENS; exec cat";
    let run = sandbox.started(&["run", "b", "a", "c", "--", "sh", "-c", line]);
    until("all are held", || {
        ["a", "b", "c"]
            .iter()
            .all(|name| sandbox.holders(name).len() == 1)
    });
    let [b, a, c] = ["b", "a", "c"].map(|name| sandbox.token(name));

    run.end().assert(0, &format!("b\n{b}\n{b} {a} {c}\n"), "");
    assert!(["a", "b", "c"].iter().all(|name| sandbox.is_free(name)));
}

/// The kernel accepts at most 128 KiB in one variable of the environment.
#[test]
fn list_of_holds_that_the_kernel_does_not_accept_is_explained() {
    let sandbox = Sandbox::new();
    let names: Vec<String> = (0..700).map(|number| format!("{number:0>100}")).collect();
    let mut arguments = vec!["run"];
    arguments.extend(names.iter().map(String::as_str));
    arguments.extend(["--", "true"]);
    sandbox
        .done(&arguments)
        .assert(64, "", "lock fewer names in one run");
    assert!(sandbox.is_free(&names[0]));
}

/// The store refuses the release, which changes a part of a key.
#[test]
fn refused_release_does_not_hide_why_the_command_was_not_started() {
    let sandbox = Sandbox::on_redis();
    let server = sandbox.server();
    server.command(&["ACL", "SETUSER", "default", "-setrange"]);
    let names: Vec<String> = (0..700).map(|number| format!("{number:0>100}")).collect();
    let mut arguments = vec!["run"];
    arguments.extend(names.iter().map(String::as_str));
    arguments.extend(["--", "true"]);

    let done = sandbox.done(&arguments);
    done.assert(64, "", "lock fewer names in one run");
    assert!(done.err.contains("cannot release"), "{done:?}");
}

#[test]
fn repeated_name_counts_once() {
    let sandbox = Sandbox::new();
    sandbox
        .done(&["run", "a", "--name=a", "--", "echo", "ran"])
        .assert(0, "ran\n", "");
}

#[test]
fn names_may_begin_with_a_hyphen() {
    let sandbox = Sandbox::new();
    let arguments = [
        "run",
        "--name=-x",
        "--name=--",
        "--",
        "sh",
        "-c",
        "echo $LEASEHOLD_NAME",
    ];
    sandbox.done(&arguments).assert(0, "-x\n", "");
    assert!(sandbox.done(&["show", "--", "--"]).out.contains("--: free"));
    for (subcommand, code) in [("check", 76), ("release", 1)] {
        let done = sandbox.done(&[subcommand, "--name=-x", "--token", "7"]);
        done.assert(code, "", "no claim holds it with this token");
    }
}

#[test]
fn missing_name_or_command_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.done(&["run", "--", "echo", "ran"]).assert(
        64,
        "",
        "NAME is missing: write `leasehold run NAME -- COMMAND…`",
    );
    for arguments in [
        &["run", "a"][..],
        &["run", "a", "echo"],
        &["run", "a", "--"],
    ] {
        sandbox.done(arguments).assert(64, "", "COMMAND is missing");
    }
}

#[test]
fn names_are_acquired_in_the_order_of_their_bytes() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("a", &[]);
    let run = sandbox.started(&["run", "b", "a", "--quiet", "--", "true"]);
    until("the run waits", || !sandbox.waiters("a").is_empty());
    assert!(sandbox.is_free("b"), "a run that waits for a holds b");

    holder.end().assert(0, "", "");
    run.wait().assert(0, "", "");
}

/// Without one order for all, each run would soon hold the name that the other one waits for.
///
/// Shows G-39.
#[test]
fn names_in_opposite_order_do_not_deadlock() {
    let sandbox = Sandbox::new();
    let loops = ["a b", "b a"].map(|names| {
        let line = format!(
            "for i in $(seq 20); do {BIN} run {names} --quiet --wait 30s -- sh -c \
             'mkdir both && rmdir both' || exit; done"
        );
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", &line])
            .current_dir(sandbox.path(""))
            .env("LEASEHOLD_STORE", sandbox.url())
            .env_remove("LEASEHOLD_HELD");
        Started::from(shell.spawn().unwrap())
    });
    for shell in loops {
        assert_eq!(shell.wait().code(), 0);
    }
}

/// Shows G-39.
#[test]
fn all_names_are_given_back_if_one_is_not_granted() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("b", &[]);
    for wait in ["0", "50ms"] {
        sandbox
            .done(&["run", "a", "b", "c", "--wait", wait, "--", "echo", "ran"])
            .assert(75, "", "b was not granted");
        assert!(sandbox.is_free("a") && sandbox.is_free("c"));
        assert!(sandbox.waiters("b").is_empty());
    }
    holder.end().assert(0, "", "");
}

/// Names that each get the whole time would add up.
///
/// Shows G-09.
#[test]
fn time_limit_of_the_wait_is_one_for_all_names() {
    const WAIT: Duration = Duration::from_secs(2);

    let sandbox = Sandbox::new();
    let [a, b] = ["a", "b"].map(|name| sandbox.holder(name, &[]));
    let run = sandbox.waiter(&["run", "a", "b", "-qw", "2s", "--", "echo", "ran"]);
    let begun = Instant::now();
    until("a part of the time is over", || begun.elapsed() > WAIT / 2);
    let granted_after = begun.elapsed();
    a.end().assert(0, "", "");

    assert_eq!(run.wait().code(), 75);
    let waited = begun.elapsed();
    assert!(waited < granted_after + WAIT, "{waited:?}");
    b.end().assert(0, "", "");
}

#[test]
fn signal_while_waiting_gives_back_all_names() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("b", &[]);
    let run = sandbox.started(&["run", "a", "b", "--quiet", "--", "echo", "ran"]);
    until("the run waits", || !sandbox.waiters("b").is_empty());
    assert_eq!(sandbox.holders("a").len(), 1);

    run.signal(Signal::SIGTERM);
    run.wait().assert_signal(Signal::SIGTERM, "");
    assert!(sandbox.is_free("a") && sandbox.waiters("b").is_empty());
}

#[test]
fn loss_of_one_name_stops_the_command() {
    let sandbox = Sandbox::new();
    for lost in ["a", "b"] {
        let run = sandbox.started(&["run", "a", "b", "--", "sleep", "1000"]);
        until("both are held", || sandbox.holders("b").len() == 1);
        sandbox.done(&["break", lost, "--token", &sandbox.token(lost)]);
        run.wait()
            .assert(76, "", &format!("leasehold: lost {lost}: "));
        assert!(sandbox.is_free("a") && sandbox.is_free("b"));
    }
}

/// The descendants of the command continue its work under all of the names, in both stores.
///
/// Shows G-20, G-40.
#[test]
fn all_names_of_a_killed_run_stay_held_until_its_processes_end() {
    let sandbox = Sandbox::new();
    let also = format!("file:{}", sandbox.path("also").display());
    let line = "sleep 1000 & echo $! > pid; wait";
    let both = ["run", "a", "b", "--also-store", &also];
    let run = sandbox.started(&[&both[..], &["--", "sh", "-c", line]].concat());
    let grandchild = sandbox.pid("pid");
    run.signal(Signal::SIGKILL);
    drop(run);
    for (name, store) in [
        ("a", &sandbox.url()),
        ("b", &sandbox.url()),
        ("a", &also),
        ("b", &also),
    ] {
        let next = ["run", "-nq", name, "--store", store, "--", "true"];
        assert_eq!(sandbox.done(&next).code(), 75, "{name} in {store}");
    }

    kill(grandchild, Signal::SIGKILL).unwrap();
    sandbox
        .done(&["run", "b", "a", "--wait", "30s", "--", "echo", "next"])
        .assert(0, "next\n", "");
}

/// A name that was lost while another was waited for is acquired again before the command runs.
#[test]
fn name_lost_during_the_wait_is_acquired_again() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("b", &[]);
    let arguments = [
        "run",
        "a",
        "b",
        "--max-hold",
        "5s",
        "--quiet",
        "--",
        "sh",
        "-c",
        "echo $LEASEHOLD_TOKENS",
    ];
    let run = sandbox.started(&arguments);
    until("the run waits", || !sandbox.waiters("b").is_empty());
    let lost = sandbox.token("a");
    until("the longest hold is over", || {
        sandbox.holders("a").is_empty()
    });

    holder.end().assert(0, "", "");
    let done = run.wait();
    done.assert(0, &done.out, "");
    let tokens: Vec<_> = done.out.split_whitespace().collect();
    assert_eq!(tokens.len(), 2, "{done:?}");
    assert_ne!(tokens[0], lost);
}

#[test]
fn nested_run_of_several_names_needs_all_of_them_held() {
    let sandbox = Sandbox::new();
    let nested = |outer: &[&str], inner: &str| {
        let inner = format!("{BIN} run {inner} -- sh -c 'echo $LEASEHOLD_TOKENS'");
        let line = format!("echo $LEASEHOLD_TOKENS; {inner}");
        sandbox.done(&[outer, &["--", "sh", "-c", &line]].concat())
    };
    let refused = |outer: &[&str], inner: &str, error: &str| {
        let done = nested(outer, inner);
        done.assert(64, &done.out, error);
    };
    refused(
        &["run", "a"],
        "a b --reentrant",
        "holds a, but not all names",
    );
    refused(&["run", "b"], "a b", "holds b, but not all names");
    refused(&["run", "a", "b"], "a b", "would wait for itself");

    let done = nested(&["run", "a", "b"], "b a --reentrant");
    let tokens: Vec<_> = done.out.split_whitespace().collect();
    let [a, b] = tokens[..2] else {
        panic!("{done:?}");
    };
    done.assert(0, &format!("{a} {b}\n{b} {a}\n"), "");
}
