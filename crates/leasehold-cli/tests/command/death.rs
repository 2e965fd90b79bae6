//! How leasehold ends when a signal has ended its command: by the same signal.
//!
//! A program that exits with 128 plus the number instead looks the same in a shell, and fails here.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::sandbox::{Finished, Sandbox, Started, until};

const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");

/// Shows G-37.
#[test]
fn run_ends_by_the_signal_that_ended_the_command() {
    let sandbox = Sandbox::new();
    // Rust has a handler for SEGV, ignores PIPE, and leasehold has handlers for INT and TERM.
    for signal in [
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
        Signal::SIGKILL,
        Signal::SIGSEGV,
        Signal::SIGPIPE,
        Signal::SIGABRT,
        Signal::SIGIO,
    ] {
        let line = format!("kill -{} $$", signal as i32);
        sandbox
            .done(&["run", "a", "--", "sh", "-c", &line])
            .assert_signal(signal, "");
    }
    assert!(sandbox.is_free("a"));
}

/// Libraries name only the signals below 32.
///
/// Shows G-37.
#[test]
fn run_ends_by_the_real_time_signal_that_ended_the_command() {
    let sandbox = Sandbox::new();
    let done = sandbox.done(&["run", "a", "--", "sh", "-c", "kill -40 $$"]);
    assert_eq!(done.status.signal(), Some(40), "{done:?}");
}

/// A parent may ignore a signal, as nohup does, and the command may reset it.
///
/// Shows G-37.
#[test]
fn run_ends_by_a_signal_that_its_parent_ignores() {
    let sandbox = Sandbox::new();
    let line = "trap '' HUP; exec \"$@\" run a -- \
                python3 -c 'import os, signal; signal.signal(1, signal.SIG_DFL); \
                            os.kill(os.getpid(), 1)'";
    let mut shell = Command::new("sh");
    shell
        .args(["-c", line, "sh", LEASEHOLD])
        .env("LEASEHOLD_STORE", sandbox.url());
    let done: Finished = shell.output().unwrap().into();
    done.assert_signal(Signal::SIGHUP, "");
}

/// The command's core dump has the same name. One of leasehold would replace it.
///
/// Shows G-37.
#[test]
fn run_leaves_no_core_dump_of_its_own() {
    let sandbox = Sandbox::new();
    let line = "ulimit -c unlimited 2> /dev/null; \
                exec \"$@\" run a -- sh -c 'ulimit -c 0; kill -SEGV $$'";
    let mut shell = Command::new("sh");
    shell
        .args(["-c", line, "sh", LEASEHOLD])
        .current_dir(sandbox.path(""))
        .env("LEASEHOLD_STORE", sandbox.url());
    let done: Finished = shell.output().unwrap().into();
    done.assert_signal(Signal::SIGSEGV, "");
    let files = std::fs::read_dir(sandbox.path("")).unwrap().flatten();
    let names: Vec<_> = files.map(|file| file.file_name()).collect();
    assert_eq!(names, ["store"]);
}

/// A signal that the first process of a container sends to itself has no effect.
///
/// Shows G-37.
#[test]
fn run_as_first_process_exits_with_128_plus_signal() {
    let sandbox = Sandbox::new();
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGKILL, 137)] {
        let line = format!("kill -{} $$", signal as i32);
        let done = first_process(&sandbox, &[LEASEHOLD, "run", "a", "--", "sh", "-c", &line]);
        done.assert(code, "", "");
    }
}

/// A first process that waits for its own child only leaves all others as zombies.
///
/// Shows G-37.
#[test]
fn run_as_first_process_reaps_orphans() {
    let sandbox = Sandbox::new();
    let line = "(sleep 0.1 & echo $! > orphan); \
                for i in $(seq 1000); do \
                    [ -e /proc/$(cat orphan) ] || exec echo reaped; sleep 0.01; \
                done";
    first_process(&sandbox, &[LEASEHOLD, "run", "a", "--", "sh", "-c", line])
        .assert(0, "reaped\n", "");
}

/// Shows G-37.
#[test]
fn run_as_first_process_reaps_orphans_while_it_waits() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("a", &[]);
    let line = "(sleep 0.1 & echo $! > orphan); \
                (while [ -e /proc/$(cat orphan) ]; do sleep 0.01; done; echo > reaped) & \
                exec $LEASEHOLD run a --quiet -- true";
    let mut command = first_process_command(&sandbox, &["sh", "-c", line]);
    let run = Started::of(command.env("LEASEHOLD", LEASEHOLD));
    until("the orphan is reaped", || sandbox.path("reaped").exists());
    assert_eq!(sandbox.waiters("a").len(), 1);
    holder.end().assert(0, "", "");
    run.wait().assert(0, "", "");
}

/// Runs a program as the first process of a PID namespace.
fn first_process(sandbox: &Sandbox, command: &[&str]) -> Finished {
    let output = first_process_command(sandbox, command).output();
    output.unwrap().into()
}

fn first_process_command(sandbox: &Sandbox, command: &[&str]) -> Command {
    let mut unshare = Command::new("unshare");
    unshare
        .args([
            "--user",
            "--map-root-user",
            "--pid",
            "--fork",
            "--mount-proc",
        ])
        .args(command)
        .current_dir(sandbox.path(""))
        .env("LEASEHOLD_STORE", sandbox.url());
    unshare
}

/// Rust ignores SIGPIPE. A command that inherited that would report an error instead of ending.
#[test]
fn command_ends_silently_when_its_reader_has_ended() {
    let sandbox = Sandbox::new();
    let line = "\"$0\" run a -- sh -c 'yes; echo $? >&2' | head -n 1";
    let mut shell = Command::new("sh");
    shell
        .args(["-c", line, LEASEHOLD])
        .env("LEASEHOLD_STORE", sandbox.url());
    let done: Finished = shell.output().unwrap().into();
    done.assert(0, "y\n", "141\n");
}
