//! Tests that run against every kind of server.

use std::io::{BufRead, BufReader};

use nix::sys::signal::{Signal, kill};

use crate::sandbox::{Sandbox, is_alive, until};
use crate::slot_numbers::{concurrent_slots_are_numbered, number_of_killed_run_is_reused};

/// Generates the tests of this module, each with a sandbox of its own.
macro_rules! on_any_server {
    ($sandbox:expr) => {
        $crate::servers::on_any_server! { $sandbox =>
            runs_exclude_each_other_in_fifo_order
            run_passes_exit_code_token_and_store
            readers_share_and_slots_are_counted
            locks_can_be_listed_shown_watched_and_broken
            nested_run_of_same_lock_is_detected
            signal_while_waiting_leaves_the_queue
            background_hold_is_acquired_and_released
            several_names_and_slot_numbers_are_held
            lock_is_held_until_all_descendants_end
        }
    };
    ($sandbox:expr => $($test:ident)+) => {
        $(#[test]
        fn $test() {
            $crate::servers::$test(&$sandbox);
        })+
    };
}
pub(crate) use on_any_server;

pub(crate) fn runs_exclude_each_other_in_fifo_order(sandbox: &Sandbox) {
    let first = sandbox.holder("a", &[]);
    sandbox
        .done(&["run", "a", "--wait", "0", "--", "true"])
        .assert(75, "", "held by");
    sandbox
        .done(&["run", "a", "--wait", "50ms", "--", "true"])
        .assert(75, "", "held by");
    let second = sandbox.waiter(&["run", "a", "--quiet", "--", "sh", "-c", "echo 2 >> order"]);
    let third = sandbox.waiter(&["run", "a", "--quiet", "--", "sh", "-c", "echo 3 >> order"]);
    first.end().assert(0, "", "");
    second.wait().assert(0, "", "");
    third.wait().assert(0, "", "");
    assert_eq!(sandbox.read("order"), "2\n3\n");
    assert!(sandbox.is_free("a"));
}

pub(crate) fn run_passes_exit_code_token_and_store(sandbox: &Sandbox) {
    sandbox
        .done(&["run", "a", "--", "sh", "-c", "exit 7"])
        .assert(7, "", "");
    sandbox
        .done(&[
            "run",
            "a",
            "--max-hold",
            "1h",
            "--",
            "sh",
            "-c",
            "kill -9 $$",
        ])
        .assert_signal(Signal::SIGKILL, "");
    let output = sandbox
        .done(&[
            "run",
            "a",
            "--",
            "sh",
            "-c",
            "echo $LEASEHOLD_TOKEN $LEASEHOLD_STORE",
        ])
        .out;
    let (token, store) = output.trim().split_once(' ').unwrap();
    assert!(token.parse::<u64>().unwrap() > 0);
    assert_eq!(store, sandbox.url());
}

pub(crate) fn readers_share_and_slots_are_counted(sandbox: &Sandbox) {
    let readers = [
        sandbox.holder("r", &["--shared"]),
        sandbox.holder("r", &["--shared"]),
    ];
    sandbox
        .done(&["run", "r", "--wait", "0", "--", "true"])
        .assert(75, "", "held by");
    let slots = [
        sandbox.holder("s", &["--slots", "3", "--permits", "2"]),
        sandbox.holder("s", &["--slots", "3"]),
    ];
    sandbox
        .done(&["run", "s", "--slots", "3", "--wait", "0", "--", "true"])
        .assert(75, "", "held by");
    sandbox
        .done(&["run", "s", "--wait", "0", "--", "true"])
        .assert(64, "", "a semaphore of 3 slots");
    readers
        .into_iter()
        .chain(slots)
        .for_each(|holder| holder.end().assert(0, "", ""));
}

pub(crate) fn locks_can_be_listed_shown_watched_and_broken(sandbox: &Sandbox) {
    let holder = sandbox.holder("jobs/ä b", &["--label", "first"]);
    let _waiter = sandbox.waiter(&["run", "jobs/ä b", "--shared", "--", "true"]);
    let _other = sandbox.holder("x", &[]);
    let listed: serde_json::Value =
        serde_json::from_str(&sandbox.done(&["ls", "--json", "jobs/"]).out).unwrap();
    assert_eq!(
        (listed.as_array().unwrap().len(), &listed[0]["name"]),
        (1, &"jobs/ä b".into())
    );
    assert_eq!(
        (
            &listed[0]["holders"][0]["label"],
            &listed[0]["waiters"][0]["position"]
        ),
        (&"first".into(), &1.into())
    );

    let mut watch = sandbox.started(&["watch", "x", "--json"]);
    let mut seen = BufReader::new(watch.out()).lines().map(Result::unwrap);
    assert!(seen.next().unwrap().contains("\"holders\":[{"));
    watch.signal(Signal::SIGINT);
    watch.wait().assert_signal(Signal::SIGINT, "");

    let token = sandbox.token("jobs/ä b");
    let never = (token.parse::<u64>().unwrap() + 1).to_string();
    assert_ne!(
        sandbox
            .done(&["break", "jobs/ä b", "--token", &never])
            .code(),
        0
    );
    let broken = sandbox.done(&["break", "jobs/ä b", "--token", &token]);
    assert!(
        broken.code() == 0
            && broken
                .out
                .starts_with("broke the hold of jobs/ä b with token"),
        "{broken:?}"
    );
    assert_eq!(
        broken.out.lines().count(),
        1,
        "the lock is free immediately: {broken:?}"
    );
    holder.wait().assert(76, "", "leasehold: lost jobs/ä b: ");
}

pub(crate) fn nested_run_of_same_lock_is_detected(sandbox: &Sandbox) {
    let nested = [
        "run",
        "a",
        "--",
        env!("CARGO_BIN_EXE_leasehold"),
        "run",
        "a",
        "--",
        "true",
    ];
    sandbox
        .done(&nested)
        .assert(64, "", "would wait for itself");
    let nested = [
        "run",
        "a",
        "--",
        env!("CARGO_BIN_EXE_leasehold"),
        "run",
        "--reentrant",
        "a",
        "--",
        "echo",
        "in",
    ];
    sandbox.done(&nested).assert(0, "in\n", "");
}

pub(crate) fn signal_while_waiting_leaves_the_queue(sandbox: &Sandbox) {
    let holder = sandbox.holder("a", &[]);
    let waiter = sandbox.waiter(&["run", "a", "--", "true"]);
    waiter.signal(Signal::SIGTERM);
    waiter.wait().assert_signal(Signal::SIGTERM, "");
    assert!(sandbox.waiters("a").is_empty());
    holder.end().assert(0, "", "");
}

/// Shows G-38.
pub(crate) fn background_hold_is_acquired_and_released(sandbox: &Sandbox) {
    for _ in 0..3 {
        let token = sandbox
            .done(&["acquire", "a", "--wait", "0", "--detach"])
            .out;
        assert_eq!(sandbox.token("a"), token.trim());
        let wait = sandbox.done(&["wait", "a", "--wait", "50ms"]);
        wait.assert(75, "", "a was not free within 50ms: held by");

        let release = ["release", "a", "--token", token.trim()];
        sandbox.done(&release).assert(0, "", "");
        assert_eq!(sandbox.done(&release).code(), 1);
    }
    sandbox
        .done(&["wait", "a", "--wait", "0"])
        .assert(0, "", "");
}

/// Shows G-39.
pub(crate) fn several_names_and_slot_numbers_are_held(sandbox: &Sandbox) {
    let line = "echo $LEASEHOLD_TOKENS; exec cat";
    let run = sandbox.started(&["run", "b", "a", "--", "sh", "-c", line]);
    until("both are held", || {
        sandbox.holders("a").len() == 1 && sandbox.holders("b").len() == 1
    });
    let tokens = format!("{} {}\n", sandbox.token("b"), sandbox.token("a"));
    run.end().assert(0, &tokens, "");

    concurrent_slots_are_numbered(sandbox);
}

/// The command has ended, and a process that has left its group and its session works on.
///
/// A run that waits for the command or for its group only would release the lock.
///
/// Shows G-36.
pub(crate) fn lock_is_held_until_all_descendants_end(sandbox: &Sandbox) {
    let line = "(setsid sh -c 'echo $$ > pid; exec sleep 1000' > /dev/null 2>&1 &); \
                until [ -s pid ]; do sleep 0.01; done; echo $$ > command; exit 4";
    let run = sandbox.started(&["run", "a", "--until-all-end", "--", "sh", "-c", line]);
    let command = sandbox.pid("command");
    let descendant = sandbox.pid("pid");
    until("the command has ended", || !is_alive(command));
    sandbox
        .done(&["run", "a", "--wait", "0", "--", "true"])
        .assert(75, "", "held by");

    kill(descendant, Signal::SIGKILL).unwrap();
    run.wait().assert(4, "", "");
    assert!(sandbox.is_free("a"));
}

/// The command gets TERM and then KILL before another client can hold the lock.
///
/// `set_paused` stops the server and continues it.
pub(crate) fn unresponsive_server_ends_the_command(sandbox: &Sandbox, set_paused: impl Fn(bool)) {
    let line = "trap '' TERM; echo $$ > pid; while :; do sleep 0.01; done";
    let run = sandbox.started(&["run", "a", "--", "sh", "-c", line]);
    let command = sandbox.pid("pid");
    set_paused(true);
    let done = run.wait();
    done.assert(76, "", "sending TERM to the command, and KILL in ");
    let url = sandbox.url();
    let (store, setting) = url.split_once('?').unwrap();
    let (scheme, authority) = store.split_once("://").unwrap();
    let host = authority.rsplit('@').next().unwrap();
    let (setting, lasts) = setting.split_once('=').unwrap();
    let setting = setting.replace('-', " ");
    let seconds = lasts.strip_suffix('s').unwrap();
    for part in [
        &format!("leasehold: losing a: {scheme}://{host}"),
        " has confirmed nothing for ",
        ") and may grant the lock to another client in ",
        &format!(" s ({setting} {seconds} s); sending TERM"),
    ] {
        assert!(done.err.contains(part), "{part:?} is not in {done:?}");
    }
    assert!(
        done.err
            .contains("the command has not ended after TERM; sending KILL"),
        "{done:?}"
    );
    assert!(!is_alive(command));
    set_paused(false);
    sandbox
        .done(&["run", "a", "--quiet", "--", "true"])
        .assert(0, "", "");
}

/// The holder and its command are killed, so the store itself must grant to the next waiter.
/// The client that takes over, and the observers, say why the hold before has ended.
pub(crate) fn end_of_a_killed_run_is_explained(sandbox: &Sandbox, options: &[&str], reason: &str) {
    let run = sandbox.holder("a", options);
    let token = sandbox.token("a");
    let mut watch = sandbox.started(&["watch", "a"]);
    let mut lines = BufReader::new(watch.out()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains(&token)));
    let mut next = sandbox.started(&["run", "a", "--", "cat"]);
    next.wait_for_output("waiting for a: ");

    run.signal(Signal::SIGKILL);
    let granted = next.wait_for_output(" granted after ");
    let before = format!("; token {token} before it: {reason}");
    assert!(granted.ends_with(&before), "{granted}");
    let watched = format!("  token {token} before: {reason}");
    assert!(lines.any(|line| line == watched));
    let ended = &sandbox.show("a")["ended"];
    assert_eq!(
        (&ended["token"], &ended["reason"]),
        (&token.into(), &reason.into())
    );

    // The grants behind it have nothing to do with that.
    let mut later = sandbox.started(&["run", "a", "--", "true"]);
    later.wait_for_output("waiting for a: ");
    next.end().assert(0, "", "");
    let granted = later.wait_for_output(" granted after ");
    assert!(!granted.contains("before it"), "{granted}");
}

pub(crate) fn killed_run_frees_the_lock(sandbox: &Sandbox) {
    let run = sandbox.holder("a", &[]);
    let next = sandbox.waiter(&["run", "a", "--quiet", "--", "echo", "mine"]);
    run.signal(Signal::SIGKILL);
    next.wait().assert(0, "mine\n", "");

    number_of_killed_run_is_reused(sandbox);
}
