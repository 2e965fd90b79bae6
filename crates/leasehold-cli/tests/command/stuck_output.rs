//! Standard error that takes no bytes: a pipe whose reader is stuck, or a terminal after Ctrl-S.

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::sandbox::{Sandbox, Started, is_alive, until};

const LOOP: &str = "trap '' TERM; echo $$ > pid; while :; do sleep 0.01; done";

/// Starts leasehold with a full pipe as its standard error.
fn stuck(sandbox: &Sandbox, arguments: &[&str]) -> Started {
    let mut command = Command::new("sh");
    command
        .args(["-c", "head -c 65536 /dev/zero >&2; exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_leasehold"))
        .args(arguments)
        .current_dir(sandbox.path(""))
        .env("LEASEHOLD_STORE", sandbox.url())
        .env_remove("LEASEHOLD_HELD")
        .env_remove("LEASEHOLD_LOG");
    Started::of(&mut command)
}

#[test]
fn command_ends_before_the_next_grant_although_standard_error_is_full() {
    for is_stopped in [false, true] {
        let sandbox = Sandbox::new();
        let arguments = ["run", "--max-hold", "2s", "a", "--", "sh", "-c", LOOP];
        let run = stuck(&sandbox, &arguments);
        let command = sandbox.pid("pid");
        if is_stopped {
            run.signal(Signal::SIGSTOP);
        }

        if is_stopped {
            // The kernel keeps the lock for the stopped process, so the next grant never comes.
            until("the watchdog has killed the command", || !is_alive(command));
        } else {
            let next = ["run", "a", "--quiet", "--wait", "30s", "--", "true"];
            sandbox.done(&next).assert(0, "", "");
            assert!(!is_alive(command));
        }
    }
}

#[test]
fn waiter_is_granted_although_standard_error_is_full() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("a", &[]);
    let mut waiter = stuck(&sandbox, &["run", "a", "--", "sh", "-c", "echo > ran"]);
    // The first line about the progress follows after half a second.
    sleep(Duration::from_secs(1));
    assert!(waiter.is_running());

    holder.end().assert(0, "", "");
    until("the waiter is granted", || !sandbox.read("ran").is_empty());
}
