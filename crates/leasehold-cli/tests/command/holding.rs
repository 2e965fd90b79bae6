//! Locks that `leasehold hold` holds until its owner ends.

use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::sandbox::{Sandbox, Started, until};
use crate::scripts::{BIN, holding};
use crate::terminal::Terminal;

/// Shows G-38.
#[test]
fn hold_prints_token_and_holds_until_input_ends() {
    let sandbox = Sandbox::new();
    let (hold, token) = holding(&sandbox, &["a", "--label", "deploy"]);
    assert_eq!(sandbox.token("a"), token);
    assert_eq!(sandbox.holders("a")[0]["label"], "deploy");

    hold.end().assert(0, "", "");
    assert!(sandbox.is_free("a"));
    sandbox
        .done(&["run", "a", "--wait", "0", "--", "echo", "next"])
        .assert(0, "next\n", "");
}

#[test]
fn hold_takes_shares_and_slots() {
    let sandbox = Sandbox::new();
    let (reader, _) = holding(&sandbox, &["r", "--shared"]);
    let (other, _) = holding(&sandbox, &["r", "--shared"]);
    let (slots, _) = holding(&sandbox, &["s", "--slots", "3", "--permits", "2"]);
    assert_eq!(sandbox.holders("r").len(), 2);
    assert_eq!(sandbox.holders("s")[0]["share"], "2 of 3");
    for hold in [reader, other, slots] {
        hold.end().assert(0, "", "");
    }
}

#[test]
fn hold_refuses_dev_null_as_input() {
    let sandbox = Sandbox::new();
    sandbox
        .done(&["hold", "a"])
        .assert(64, "", "give --while-pid PID, in a script --while-pid $$");
    assert!(sandbox.is_free("a"));

    let closed = sandbox.run_script("sh", "leasehold hold a <&-");
    closed.assert(64, "", "--while-pid");
}

#[test]
fn hold_refuses_an_input_that_cannot_be_read() {
    let sandbox = Sandbox::new();
    for input in ["< /", "0> output"] {
        let done = sandbox.run_script("sh", &format!("timeout 60 leasehold hold a {input}"));
        done.assert(64, "", "standard input cannot be read: ");
    }
    assert!(sandbox.is_free("a"));
}

/// Shows G-38.
#[test]
fn hold_ends_with_its_process_without_reading_input() {
    let sandbox = Sandbox::new();
    let mut owner = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = owner.id().to_string();

    let child = sandbox
        .leasehold(&["hold", "a", "--while-pid", &pid])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut hold = Started::from(child);
    let mut token = String::new();
    BufReader::new(hold.out()).read_line(&mut token).unwrap();
    assert!(hold.is_running());

    owner.kill().unwrap();
    hold.wait().assert(0, "", "");
    assert!(sandbox.is_free("a"));
    owner.wait().unwrap();
}

#[test]
fn hold_for_a_process_that_has_ended_is_refused() {
    let sandbox = Sandbox::new();
    let mut owner = Command::new("true").spawn().unwrap();
    let pid = owner.id().to_string();
    owner.wait().unwrap();

    for arguments in [
        &["hold", "a", "--while-pid", &pid][..],
        &["acquire", "a", "--while-pid", &pid],
        &["hold", "a", "--while-pid", "0"],
        &["acquire", "a", "--while-pid", "0"],
        &["hold", "a", "--while-pid=-1"],
        &["acquire", "a", "--while-pid=-1"],
    ] {
        sandbox.done(arguments).assert(64, "", "does not exist");
    }
    assert!(sandbox.is_free("a"));
}

#[test]
fn id_of_a_thread_is_refused() {
    let sandbox = Sandbox::new();
    let (send, receive) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        send.send(nix::unistd::gettid()).unwrap();
        ended.recv().unwrap_err();
    });

    let id = receive.recv().unwrap().to_string();
    sandbox
        .done(&["hold", "a", "--while-pid", &id])
        .assert(64, "", "is a thread, not a process");
    drop(end);
    thread.join().unwrap();
}

#[test]
fn signal_releases_the_hold() {
    let sandbox = Sandbox::new();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let (hold, _) = holding(&sandbox, &["a"]);
        hold.signal(signal);
        hold.wait().assert_signal(signal, "");
        assert!(sandbox.is_free("a") && sandbox.flock("a"), "{signal}");
    }
}

#[test]
fn signal_makes_a_waiting_hold_leave_the_queue() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("a", &[]);
    let waiter = sandbox.waiter(&["hold", "a", "--quiet"]);
    waiter.signal(Signal::SIGTERM);
    waiter.wait().assert_signal(Signal::SIGTERM, "");
    assert!(sandbox.waiters("a").is_empty());
}

/// The lock must not be granted to a script that is gone.
///
/// Shows G-38.
#[test]
fn end_of_input_makes_a_waiting_hold_leave_the_queue() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("a", &[]);
    let waiter = sandbox.waiter(&["hold", "a"]);
    let reason = "a was not granted before standard input ended";
    waiter.end().assert(75, "", reason);
    assert!(sandbox.waiters("a").is_empty());
}

#[test]
fn hold_that_is_not_granted_in_time_exits_with_75() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("a", &[]);
    for wait in ["0", "50ms"] {
        let hold = sandbox.started(&["hold", "a", "--wait", wait]);
        hold.wait().assert(75, "", "a was not granted");
        sandbox
            .done(&["acquire", "a", "--wait", wait, "--detach"])
            .assert(75, "", "a was not granted");
    }
    assert!(sandbox.waiters("a").is_empty());
}

#[test]
fn lost_hold_exits_with_76_and_the_reason() {
    let sandbox = Sandbox::new();
    let (hold, token) = holding(&sandbox, &["a"]);
    sandbox.done(&["break", "a", "--token", &token]);
    hold.wait().assert(76, "", "leasehold: lost a: ");
    assert!(sandbox.flock("a"));
}

#[test]
fn hold_inside_a_run_of_the_same_name_is_refused() {
    let sandbox = Sandbox::new();
    for inner in ["hold a --while-pid $$", "acquire a --while-pid $$"] {
        let line = format!("{BIN} {inner}");
        sandbox.done(&["run", "a", "--", "sh", "-c", &line]).assert(
            64,
            "",
            "the command has the lock already",
        );
    }
}

#[test]
fn hold_in_the_foreground_of_a_terminal_ends_with_its_input() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::with(&sandbox, "$LEASEHOLD hold a");
    until("the lock is held", || !sandbox.holders("a").is_empty());
    terminal.until_shows(&sandbox.token("a"));
    terminal.types("ignored\n\x04");
    assert_eq!(terminal.code_of_end(), Some(0));
    assert!(sandbox.is_free("a"));
}

/// Reading would stop the whole process while it holds the lock.
#[test]
fn hold_in_the_background_of_a_terminal_is_refused() {
    let sandbox = Sandbox::new();
    let line = "sh -c 'set -m; $LEASEHOLD hold a & wait $!; echo code=$?'";
    let mut terminal = Terminal::with(&sandbox, line);
    terminal.until_shows("in a shell --while-pid $$");
    terminal.until_shows("code=64");
}

/// The hold goes on without its input, until a signal, or in the foreground until its input ends.
#[test]
fn hold_moved_to_the_background_keeps_the_lock() {
    for (end, has_input, code) in [
        ("kill -TERM $!; wait $!", false, "code=143"),
        ("fg", true, "code=0"),
    ] {
        let sandbox = Sandbox::new();
        let mut terminal = Terminal::shell(&sandbox);
        terminal.types("$LEASEHOLD hold a\n");
        until("the lock is held", || !sandbox.holders("a").is_empty());
        terminal.types("\x1a");
        terminal.until_shows("Stopped");
        terminal.types("bg; echo mo\"\"ved\n");
        terminal.until_shows("moved");
        let holder = sandbox.holder_pid("a");
        until("it runs again", || !is_stopped(holder));

        terminal.types(&format!("{end}; echo co\"\"de=$?\n"));
        if has_input {
            until("it is in the foreground", || is_in_foreground(holder));
            terminal.types("\x04");
        }
        terminal.until_shows(code);
        assert!(sandbox.is_free("a"));
    }
}

/// node, ssh and others make the descriptor non-blocking, for all who have it.
#[test]
fn hold_ends_with_an_input_that_does_not_block() {
    let sandbox = Sandbox::new();
    let (input, writer) = UnixStream::pair().unwrap();
    input.set_nonblocking(true).unwrap();
    let mut hold = sandbox.leasehold(&["hold", "a"]);
    hold.stdin(OwnedFd::from(input)).stdout(Stdio::piped());
    let hold = Started::from(hold.stderr(Stdio::piped()).spawn().unwrap());
    until("the lock is held", || !sandbox.holders("a").is_empty());
    drop(writer);
    assert_eq!(hold.wait().code(), 0);
    assert!(sandbox.is_free("a"));
}

fn is_in_foreground(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    // The process group of the process, and that of its terminal.
    matches!(fields[..], [_, _, group, _, _, foreground, ..] if group == foreground)
}

fn is_stopped(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.contains(") T ")
}
