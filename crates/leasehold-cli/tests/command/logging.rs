//! The log on standard error, and messages that name a stopped process.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use serde_json::Value;

use crate::sandbox::{Finished, Sandbox, Started, is_alive, until};

/// The lines of the log, which are JSON. Other lines are leasehold's own messages.
fn log(done: &Finished) -> Vec<Value> {
    done.err
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn find<'a>(log: &'a [Value], message: &str) -> &'a Value {
    let found = log.iter().find(|event| event["message"] == message);
    found.unwrap_or_else(|| panic!("no event {message:?} in {log:?}"))
}

const JSON: [&str; 3] = ["--verbose", "--log-format", "json"];

#[test]
fn verbose_run_logs_grant_and_release_with_stable_fields() {
    let sandbox = Sandbox::new();
    let command = ["run", "a", "-c", "echo $LEASEHOLD_TOKEN; sleep 0.1"];
    let done = sandbox.done(&[&JSON[..], &command].concat());
    let log = log(&done);
    let token = done.out.trim();

    let granted = find(&log, "granted");
    assert_eq!(granted["level"], "INFO");
    assert_eq!(
        (&granted["name"], &granted["token"]),
        (&"a".into(), &token.into())
    );
    assert_eq!(granted["store"], sandbox.url());
    assert!(
        granted["wait_ms"].is_u64() && granted["claim"].is_string(),
        "{granted}"
    );

    let released = find(&log, "released");
    assert_eq!(released["claim"], granted["claim"]);
    assert!(released["hold_ms"].as_u64().unwrap() >= 100, "{released}");
    let messages: Vec<_> = log.iter().map(|event| &event["message"]).collect();
    assert_eq!(messages, ["store opened", "granted", "released"]);
}

#[test]
fn log_is_off_by_default_and_filtered_by_the_variable() {
    let sandbox = Sandbox::new();
    sandbox.done(&["run", "a", "--", "true"]).assert(0, "", "");

    let mut run = sandbox.leasehold(&["run", "a", "--", "true"]);
    let done: Finished = run.env("LEASEHOLD_LOG", "info").output().unwrap().into();
    assert!(done.err.contains(" INFO granted store="), "{done:?}");
    assert!(done.err.contains(" INFO released store="), "{done:?}");

    let mut run = sandbox.leasehold(&["-v", "run", "a", "--", "true"]);
    let done: Finished = run.env("LEASEHOLD_LOG", "error").output().unwrap().into();
    done.assert(0, "", "");
}

#[test]
fn filter_that_cannot_be_read_is_reported_and_the_log_has_its_usual_level() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.leasehold(&["run", "a", "--", "true"]);
    let done: Finished = run.env("LEASEHOLD_LOG", "][").output().unwrap().into();

    assert_eq!(done.code(), 0, "{done:?}");
    let first = done.err.lines().next().unwrap();
    assert!(
        first.starts_with("leasehold: LEASEHOLD_LOG=\"][\" is not a log filter"),
        "{done:?}"
    );
    assert!(done.err.contains(" INFO granted store="), "{done:?}");
}

#[test]
fn loss_is_logged_with_its_reason() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("a", &JSON);
    let token = sandbox.token("a");
    assert_eq!(sandbox.done(&["break", "a", "--token", &token]).code(), 0);
    let done = holder.wait();
    assert_eq!(done.code(), 76, "{done:?}");

    let log = log(&done);
    let lost = find(&log, "lost");
    assert_eq!(lost["level"], "WARN");
    assert!(
        lost["reason"]
            .as_str()
            .unwrap()
            .contains("no longer has the claim"),
        "{lost}"
    );
    assert!(
        !log.iter().any(|event| event["message"] == "released"),
        "{log:?}"
    );
}

/// The URL has a password, which no line of the log contains.
#[test]
fn outage_of_the_server_is_logged_once_and_without_the_password() {
    let sandbox = Sandbox::on_redis();
    let url = sandbox.url().replace("redis://", "redis://:hunter2@");
    let server = sandbox.server();
    let reply = server.command(&["CONFIG", "SET", "requirepass", "hunter2"]);
    assert!(!reply.is_error(), "{reply:?}");

    let mut run = sandbox.leasehold(&[&JSON[..], &["run", "a", "--", "cat"]].concat());
    run.env("LEASEHOLD_STORE", &url)
        .env("LEASEHOLD_LOG", "info");
    let mut run = Started::of(&mut run);
    run.wait_for_output("granted");
    server.pause();
    run.wait_for_output("store unreachable");
    server.resume();
    let line = run.wait_for_output("store reachable again");
    let event: Value = serde_json::from_str(&line).unwrap();
    assert!(event["outage_ms"].is_u64(), "{event}");
    let done = run.end();
    assert_eq!(done.code(), 0, "{done:?}");
    assert!(
        !done.err.contains("hunter2") && !line.contains("hunter2"),
        "{done:?}"
    );
}

#[test]
fn stopped_holder_is_named_in_show_and_in_the_refusal() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("a", &[]);
    assert_eq!(sandbox.holders("a")[0]["stopped"], false);
    holder.signal(Signal::SIGSTOP);
    until("the holder is shown as stopped", || {
        sandbox.holders("a")[0]["stopped"] == true
    });

    let shown = sandbox.done(&["show", "a"]).out;
    assert!(shown.contains(" (cat), stopped, exclusive, "), "{shown}");
    let done = sandbox.done(&["run", "-n", "a", "--", "true"]);
    assert!(
        done.code() == 75
            && done
                .err
                .contains("s, stopped; see `leasehold show a`; store "),
        "{done:?}"
    );

    holder.signal(Signal::SIGCONT);
    assert_eq!(holder.end().code(), 0);
}

#[test]
fn stopped_command_is_named_in_show_and_in_the_refusal() {
    let sandbox = Sandbox::new();
    let holder = sandbox.started(&[
        "run",
        "a",
        "--",
        "sh",
        "-c",
        "echo $$ > pid; exec sleep 1000",
    ]);
    let command = sandbox.pid("pid");
    assert_eq!(sandbox.holders("a")[0]["command_stopped"], false);
    kill(command, Signal::SIGSTOP).unwrap();
    until("the command is shown as stopped", || {
        sandbox.holders("a")[0]["command_stopped"] == true
    });

    let shown = sandbox.done(&["show", "a"]).out;
    assert!(
        shown.contains(", its command is stopped, exclusive, "),
        "{shown}"
    );
    let done = sandbox.done(&["run", "-n", "a", "--", "true"]);
    assert!(
        done.code() == 75
            && done
                .err
                .contains("s, its command is stopped; see `leasehold show a`; store "),
        "{done:?}"
    );

    kill(command, Signal::SIGKILL).unwrap();
    assert_eq!(holder.wait().status.signal(), Some(Signal::SIGKILL as i32));
}

/// With a thousand waiters on one machine, a table of all processes for each took many seconds.
#[test]
fn show_reads_no_process_but_those_of_the_claims() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("a", &[]);
    let mut show = Command::new("strace");
    show.args(["-f", "-e", "trace=openat", "-o", "calls"])
        .args([env!("CARGO_BIN_EXE_leasehold"), "show", "a"])
        .current_dir(sandbox.path(""))
        .env("LEASEHOLD_STORE", sandbox.url());
    let done = Finished::from(show.output().unwrap());
    assert!(
        done.code() == 0 && done.out.contains(" (cat), exclusive, "),
        "{done:?}"
    );

    let calls = sandbox.read("calls");
    let is_read = |pid: i32| calls.contains(&format!("\"/proc/{pid}/stat\""));
    assert!(is_read(holder.pid().as_raw()), "{calls}");
    assert!(!is_read(1), "{calls}");
}

#[test]
fn stopped_waiter_is_named_as_the_one_that_does_not_take_its_turn() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("a", &[]);
    let waiter = sandbox.waiter(&["run", "a", "--label", "the second", "--", "true"]);
    waiter.signal(Signal::SIGSTOP);
    until("the waiter is stopped", || {
        sandbox.waiters("a")[0]["stopped"] == true
    });
    assert_eq!(holder.end().code(), 0);

    let done = sandbox.done(&["run", "-w", "0.5", "a", "--", "true"]);
    let part = "(the second), which is stopped and does not take its turn";
    done.assert(75, "", part);
    assert!(done.err.contains("next is leasehold["), "{done:?}");

    waiter.signal(Signal::SIGCONT);
    let pid = waiter.pid();
    waiter.wait().assert(0, "", "granted after");
    assert!(!is_alive(pid));
}
