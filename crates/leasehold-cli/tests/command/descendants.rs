//! The processes that the command has started, in other groups and sessions too.

use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::{Signal, kill};

use crate::sandbox::{Finished, Sandbox, Started, is_alive, until};

const KILLED_BY_THE_WATCHDOG: &str =
    "the hold ends, and leasehold has not ended the command; sending KILL to it";

/// Starts a run whose command has one descendant in another session and one that is an orphan.
fn run_with_daemons(sandbox: &Sandbox, options: &[&str]) -> Started {
    let line = "setsid sh -c 'echo $$ > session; exec sleep 1000' & \
                (setsid sh -c '(sleep 1000 & echo $! > orphan)' &); \
                echo $$ > pid; exec sleep 1000";
    let run = sandbox.started(&[&["run", "a"], options, &["--", "sh", "-c", line]].concat());
    for file in ["session", "orphan", "pid"] {
        sandbox.pid(file);
    }
    run
}

fn assert_all_ended(sandbox: &Sandbox) {
    for file in ["session", "orphan", "pid"] {
        assert!(!is_alive(sandbox.pid(file)), "{file} still runs");
    }
}

/// A run that stops the command's process group only leaves two processes at work.
///
/// Shows G-36.
#[test]
fn loss_ends_descendants_in_other_sessions() {
    for options in [
        &["--max-hold", "1s"][..],
        &["--max-hold", "1s", "--on-lost", "kill"],
    ] {
        let sandbox = Sandbox::new();
        let run = run_with_daemons(&sandbox, options);
        assert_eq!(run.wait().code(), 76, "{options:?}");
        assert_all_ended(&sandbox);
    }
}

/// Shows G-36.
#[test]
fn descendant_in_another_session_gets_term_first() {
    let sandbox = Sandbox::new();
    let line = "trap 'exit 0' TERM; \
                setsid sh -c 'trap \"echo cleaned > log; exit 0\" TERM; echo $$ > pid; \
                              while :; do sleep 0.01; done' & \
                while :; do sleep 0.01; done";
    let run = sandbox.started(&["run", "a", "-k", "30s", "--", "sh", "-c", line]);
    let descendant = sandbox.pid("pid");
    let token = sandbox.token("a");
    assert_eq!(sandbox.done(&["break", "a", "--token", &token]).code(), 0);
    assert_eq!(run.wait().code(), 76);
    assert_eq!(sandbox.read("log"), "cleaned\n");
    assert!(!is_alive(descendant));
}

/// A shell that executes leasehold in its own place passes its background processes on.
///
/// Shows G-36.
#[test]
fn loss_spares_processes_that_the_command_has_not_started() {
    let sandbox = Sandbox::new();
    for options in ["--max-hold 500ms", "--until-all-end"] {
        let line = format!(
            "(sleep 1000 & echo $! > orphan); sleep 1000 & echo $! > other; \
             exec $LEASEHOLD run a {options} -- sleep 1"
        );
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &line])
            .current_dir(sandbox.path(""))
            .stdout(std::process::Stdio::null())
            .env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold"))
            .env("LEASEHOLD_STORE", sandbox.url());
        let status = shell.status().unwrap();
        let expected = if options == "--until-all-end" { 0 } else { 76 };
        assert_eq!(status.code(), Some(expected), "{options}");
        for file in ["other", "orphan"] {
            let other = sandbox.pid(file);
            assert!(is_alive(other), "{file} was killed");
            kill(other, Signal::SIGKILL).unwrap();
            std::fs::remove_file(sandbox.path(file)).unwrap();
        }
    }
}

/// Shows G-36.
#[test]
fn file_lock_is_held_until_all_descendants_end() {
    crate::servers::lock_is_held_until_all_descendants_end(&Sandbox::new());
}

#[test]
fn signals_reach_descendants_after_the_end_of_the_command() {
    let sandbox = Sandbox::new();
    let line = "(setsid sh -c 'echo $$ > pid; exec sleep 1000' > /dev/null 2>&1 &); \
                until [ -s pid ]; do sleep 0.01; done; echo $$ > command";
    let run = sandbox.started(&["run", "a", "--until-all-end", "--", "sh", "-c", line]);
    let command = sandbox.pid("command");
    until("the command was reaped", || {
        !std::path::Path::new(&format!("/proc/{command}")).exists()
    });
    run.signal(Signal::SIGTERM);
    assert_eq!(run.wait().code(), 0);
    assert!(!is_alive(sandbox.pid("pid")));
}

/// Ctrl-C has no visible effect if the remaining processes ignore it.
#[test]
fn signal_after_the_end_of_the_command_prints_what_still_runs() {
    let sandbox = Sandbox::new();
    let line = "setsid sh -c 'trap \"\" TERM; echo $$ > pid; exec sleep 1000' > /dev/null 2>&1 & \
                until [ -s pid ]; do sleep 0.01; done; echo $$ > command";
    let mut run = sandbox.started(&["run", "a", "--until-all-end", "--", "sh", "-c", line]);
    let command = sandbox.pid("command");
    until("the command was reaped", || {
        !std::path::Path::new(&format!("/proc/{command}")).exists()
    });

    run.signal(Signal::SIGTERM);
    let descendant = sandbox.pid("pid");
    run.wait_for_output(&format!(
        "--until-all-end waits for its processes {descendant}"
    ));
    kill(descendant, Signal::SIGKILL).unwrap();
    run.wait().assert(0, "", "");
}

/// Shows G-36.
#[test]
fn loss_ends_descendants_after_the_end_of_the_command() {
    let sandbox = Sandbox::new();
    let line = "setsid sh -c 'trap \"\" TERM; echo $$ > pid; exec sleep 1000' > /dev/null 2>&1 & \
                until [ -s pid ]; do sleep 0.01; done";
    let options = ["--until-all-end", "--max-hold", "1s"];
    let run = sandbox.started(&[&["run", "a"], &options[..], &["--", "sh", "-c", line]].concat());
    let descendant = sandbox.pid("pid");
    assert_eq!(run.wait().code(), 76);
    assert!(!is_alive(descendant));
}

/// A process that is stopped sends no signals. So another process must end the command.
///
/// Shows G-36.
#[test]
fn stopped_run_does_not_leave_its_command_running_after_the_hold() {
    let sandbox = Sandbox::new();
    let run = run_with_daemons(&sandbox, &["--max-hold", "1s"]);
    run.signal(Signal::SIGSTOP);
    until("the command has ended", || !is_alive(sandbox.pid("pid")));
    until("all descendants have ended", || {
        ["session", "orphan"]
            .iter()
            .all(|file| !is_alive(sandbox.pid(file)))
    });
    run.signal(Signal::SIGCONT);
    run.wait().assert(76, "", KILLED_BY_THE_WATCHDOG);
}

/// The watchdog learns of the end of such a short hold again when it has ended the command.
#[test]
fn end_of_the_hold_is_reported_once() {
    let sandbox = Sandbox::new();
    for _ in 0..5 {
        let done = sandbox.done(&["run", "a", "--max-hold", "10ms", "--", "sleep", "1000"]);
        let lines = done.err.lines();
        let reports = lines.filter(|line| line.ends_with(KILLED_BY_THE_WATCHDOG));
        assert!(reports.count() < 2, "{done:?}");
    }
}

/// On a server, the next waiter is granted the lock while the first run is stopped or dead. No
/// process of its command may work on beside the next holder.
pub(crate) fn command_has_ended_before_the_next_grant(
    sandbox: &Sandbox,
    signal: Signal,
) -> Finished {
    // The lock of a run that was stopped becomes free at the end of its lease.
    let run = run_with_daemons(sandbox, &["--lease", "4s"]);
    let line = "for file in session orphan pid; do \
                    grep -q '^State:.[^Z]' /proc/$(cat $file)/status 2> /dev/null && echo $file; \
                done; true";
    let next = sandbox.waiter(&["run", "a", "--quiet", "--", "sh", "-c", line]);
    run.signal(signal);
    next.wait().assert(0, "", "");
    run.signal(Signal::SIGCONT);
    run.wait()
}

/// Where the hold has no end, the lock stays held, and the command runs on.
///
/// Shows G-36.
#[test]
fn stopped_run_keeps_lock_and_command_where_a_hold_has_no_end() {
    let sandbox = Sandbox::new();
    let run = sandbox.holder("a", &[]);
    run.signal(Signal::SIGSTOP);
    sandbox
        .done(&["run", "a", "--wait", "300ms", "--", "true"])
        .assert(75, "", "held by");
    run.signal(Signal::SIGCONT);
    run.end().assert(0, "", "");
}

/// A run in the first group of a session, as in a container, has no shell that could continue it.
#[test]
fn terminal_stop_of_run_without_job_control_is_ignored() {
    let sandbox = Sandbox::new();
    let mut command = Command::new("setsid");
    command
        .args(["--wait", env!("CARGO_BIN_EXE_leasehold"), "run", "a", "--"])
        .args(["sh", "-c", "kill -TSTP $PPID; echo done"])
        .process_group(0)
        .env("LEASEHOLD_STORE", sandbox.url());
    let done: Finished = command.output().unwrap().into();
    done.assert(0, "done\n", "");
}
