//! Signals that leasehold forwards to the command, and SIGKILL to leasehold itself.

use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::sandbox::{Sandbox, Started, is_alive, is_stopped, until};

#[test]
fn signals_reach_the_whole_process_group() {
    let sandbox = Sandbox::new();
    let line = "sleep 1000 & echo $! > pid; wait";
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR2] {
        std::fs::remove_file(sandbox.path("pid")).ok();
        let run = sandbox.started(&["run", "a", "--", "sh", "-c", line]);
        let grandchild = sandbox.pid("pid");
        run.signal(signal);
        run.wait().assert_signal(signal, "");
        until("the grandchild is gone", || !is_alive(grandchild));
    }
    assert!(sandbox.is_free("a"));
}

/// A supervisor that asks leasehold to end can continue leasehold alone.
#[test]
fn signal_that_ends_a_stopped_command_continues_it() {
    let sandbox = Sandbox::new();
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        std::fs::remove_file(sandbox.path("pid")).ok();
        let line = "echo $$ > pid; kill -STOP $$; exec sleep 1000";
        let run = sandbox.started(&["run", "a", "--", "sh", "-c", line]);
        let command = sandbox.pid("pid");
        until("the command has stopped", || is_stopped(command));
        run.signal(signal);
        run.wait().assert_signal(signal, "");
        assert!(sandbox.is_free("a"));
    }
}

/// Supervisors that read signals from a descriptor block them, also for the programs they start.
///
/// Shows G-37.
#[test]
fn command_ends_under_a_parent_that_blocks_sigchld() {
    let sandbox = Sandbox::new();
    for arguments in [
        &["run", "a", "--", "true"][..],
        &["run", "a", "--until-all-end", "--", "true"],
        &[
            "elect",
            "a",
            "--address",
            "one:1",
            "--",
            "sh",
            "-c",
            "exit 127",
        ],
    ] {
        let leasehold = sandbox.leasehold(arguments);
        let mut blocking = Command::new("env");
        blocking
            .arg("--block-signal=CHLD")
            .arg(leasehold.get_program())
            .args(leasehold.get_args())
            .envs(
                leasehold
                    .get_envs()
                    .filter_map(|(key, value)| Some((key, value?))),
            );
        let run = Started::of(&mut blocking);
        let code = if arguments[0] == "elect" { 127 } else { 0 };
        assert_eq!(run.wait().code(), code, "{arguments:?}");
        assert!(sandbox.is_free("a"));
    }
}

#[test]
fn signals_are_handled_by_the_command() {
    let sandbox = Sandbox::new();
    let line = "trap 'echo caught >> log' USR1; trap 'exit 9' INT; echo $$ > pid; \
                while :; do sleep 0.01; done";
    let run = sandbox.started(&["run", "a", "--", "sh", "-c", line]);
    sandbox.pid("pid");
    run.signal(Signal::SIGUSR1);
    until("the command has caught the signal", || {
        sandbox.read("log") == "caught\n"
    });
    assert_eq!(sandbox.holders("a").len(), 1);
    run.signal(Signal::SIGINT);
    assert_eq!(run.wait().code(), 9);
}

#[test]
fn killed_run_kills_its_command_and_frees_the_lock() {
    let sandbox = Sandbox::new();
    let run = sandbox.started(&[
        "run",
        "a",
        "--",
        "sh",
        "-c",
        "trap '' TERM; echo $$ > pid; exec sleep 1000",
    ]);
    let command = sandbox.pid("pid");
    run.signal(Signal::SIGKILL);
    drop(run);
    until("the command is gone", || !is_alive(command));
    sandbox
        .done(&["run", "a", "--wait", "30s", "--", "echo", "next"])
        .assert(0, "next\n", "");
}

/// The descendants of the command continue its work. So neither leasehold nor flock(1) may acquire.
///
/// Shows G-20.
#[test]
fn lock_of_killed_run_stays_held_until_its_processes_end() {
    for options in [&[][..], &["--shared"], &["--slots", "1"]] {
        let sandbox = Sandbox::new();
        let line = "sleep 1000 & echo $! > pid; wait";
        let run = sandbox.started(&[&["run", "a"], options, &["--", "sh", "-c", line]].concat());
        let grandchild = sandbox.pid("pid");
        run.signal(Signal::SIGKILL);
        drop(run);
        assert_eq!(sandbox.holders("a").len(), 1, "{options:?}");
        assert_eq!(
            sandbox
                .done(&["run", "a", "--wait", "0", "--", "true"])
                .code(),
            75,
            "{options:?}"
        );
        assert!(!sandbox.flock("a"), "{options:?}");
        kill(grandchild, Signal::SIGKILL).unwrap();
        sandbox
            .done(&["run", "a", "--wait", "30s", "--", "echo", "next"])
            .assert(0, "next\n", "");
    }
}

/// Background processes that a command leaves behind do not keep the lock of a finished run.
#[test]
fn daemon_left_by_the_command_does_not_keep_the_lock() {
    let sandbox = Sandbox::new();
    sandbox
        .done(&[
            "run",
            "a",
            "--",
            "sh",
            "-c",
            "sleep 1000 > /dev/null 2>&1 & echo $! > pid",
        ])
        .assert(0, "", "");
    let daemon = sandbox.pid("pid");
    assert!(is_alive(daemon) && sandbox.is_free("a") && sandbox.flock("a"));
    sandbox
        .done(&["run", "a", "--wait", "0", "--", "echo", "next"])
        .assert(0, "next\n", "");
    kill(daemon, Signal::SIGKILL).unwrap();
}

/// Stops and continues a run and its command, as a key and `fg` do.
fn stop_and_continue(run: &Started, command: Pid) {
    run.signal(Signal::SIGTSTP);
    until("both have stopped", || {
        is_stopped(command) && is_stopped(run.pid())
    });
    run.signal(Signal::SIGCONT);
    until("both have continued", || {
        !is_stopped(command) && !is_stopped(run.pid())
    });
}

/// Starts a command that reads its standard input, and stops and continues it as a key and `fg` do.
/// Returns the process id of the command too.
fn stopped_and_continued(sandbox: &Sandbox, arguments: &[&str]) -> (Started, Pid) {
    let line = ["--", "sh", "-c", "echo $$ > pid; exec cat"];
    // The kernel stops a process only where a process of another group could continue it.
    let mut run = sandbox.leasehold(&[arguments, &line].concat());
    let run = Started::of(run.process_group(0));
    let command = sandbox.pid("pid");
    stop_and_continue(&run, command);
    (run, command)
}

#[test]
fn run_stops_and_continues_with_its_command() {
    let sandbox = Sandbox::new();
    let (run, _) = stopped_and_continued(&sandbox, &["run", "a"]);
    run.end().assert(0, "", "");
}

/// A command that runs on after the loss of its lock is stopped and continued as before.
///
/// Shows G-36.
#[test]
fn command_that_ignores_the_loss_continues_after_a_stop() {
    let sandbox = Sandbox::new();
    let line = "echo $$ > pid; exec sleep 1000";
    let options = ["run", "a", "--max-hold", "200ms", "--on-lost", "ignore"];
    let mut run = sandbox.leasehold(&[&options[..], &["--", "sh", "-c", line]].concat());
    let run = Started::of(run.process_group(0));
    let command = sandbox.pid("pid");
    until("the hold is over", || sandbox.is_free("a"));

    stop_and_continue(&run, command);
    kill(command, Signal::SIGTERM).unwrap();
    assert_eq!(run.wait().code(), 76);
}

/// A job that was stopped and continued is done, and a candidate campaigns again.
///
/// Shows G-48, G-58.
#[test]
fn stop_of_a_job_is_no_request_to_end() {
    let sandbox = Sandbox::new();
    let once = ["run", "a", "--once", "1"];
    let (run, _) = stopped_and_continued(&sandbox, &once);
    run.end().assert(0, "", "");
    let again = [&once[..], &["--", "echo", "again"]].concat();
    sandbox.done(&again).assert(0, "", "a is done: ");

    std::fs::remove_file(sandbox.path("pid")).unwrap();
    let elect = ["elect", "b", "--address", "one:1"];
    let (candidate, command) = stopped_and_continued(&sandbox, &elect);
    kill(command, Signal::SIGTERM).unwrap();
    until("the next command runs", || sandbox.pid("pid") != command);
    candidate.signal(Signal::SIGTERM);
    candidate
        .wait()
        .assert_signal(Signal::SIGTERM, "elected leader of b");
}
