//! Limits on threads, processes, descriptors and the size of files.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::sandbox::{Finished, Sandbox};

/// Builds a run in a store of its own under a limit, which is an option of prlimit(1).
fn run_under(limit: &str, sandbox: &Sandbox) -> Command {
    let store = format!("file:{}", sandbox.path(limit).display());
    let run = ["run", "-n", "a", "--store", &store, "--", "true"];
    let mut command = Command::new("prlimit");
    command.args([limit, env!("CARGO_BIN_EXE_leasehold")]);
    command.args(run).env_remove("LEASEHOLD_LOG");
    command
}

#[track_caller]
fn assert_names_the_limit(limit: &str, done: &Finished, help: &str) {
    assert_eq!(done.code(), 69, "{limit}: {done:?}");
    let lines: Vec<&str> = done.err.lines().collect();
    assert!(
        lines.len() == 1 && lines[0].ends_with(help) && lines[0].matches("raise").count() == 1,
        "{limit}: {done:?}"
    );
}

/// The kernel limits the threads of all users but root.
#[test]
fn missing_thread_or_process_is_an_error_with_the_limit_to_raise() {
    let sandbox = Sandbox::new();
    set_permissions(sandbox.path(""), Permissions::from_mode(0o777)).unwrap();
    for processes in 1..=3 {
        let limit = format!("--nproc={processes}");
        let run = run_under(&limit, &sandbox);
        let user = 54420 + processes;
        let done: Finished = Command::new("setpriv")
            .args([format!("--reuid={user}"), format!("--regid={user}")])
            .args(["--clear-groups", "prlimit"])
            .args(run.get_args())
            .env_remove("LEASEHOLD_LOG")
            .output()
            .unwrap()
            .into();
        // A thread of the store may end in time for the command.
        if processes < 3 || done.code() != 0 {
            assert_names_the_limit(&limit, &done, "pids.max)");
        }
    }
}

#[test]
fn missing_descriptor_is_an_error_with_the_limit_to_raise() {
    let sandbox = Sandbox::new();
    for descriptors in 4..=22 {
        let limit = format!("--nofile={descriptors}");
        let done = run_under(&limit, &sandbox).output().unwrap().into();
        assert_names_the_limit(&limit, &done, "LimitNOFILE=)");
    }
}

/// An entry that is cut off would block the lock until the next boot.
#[test]
fn size_limit_of_files_tears_no_entry() {
    let sandbox = Sandbox::new();
    for size in [0, 1, 100, 511, 600, 1025, 1100, 1279] {
        let limit = format!("--fsize={size}");
        let done: Finished = run_under(&limit, &sandbox).output().unwrap().into();
        assert_names_the_limit(&limit, &done, "LimitFSIZE=)");

        let store = format!("file:{}", sandbox.path(&limit).display());
        let after = sandbox.done(&["run", "-n", "a", "--store", &store, "--", "true"]);
        after.assert(0, "", "");
    }
}

#[test]
fn command_gets_the_size_signal_as_the_caller_has_it() {
    const SIGXFSZ: u32 = 25;
    let sandbox = Sandbox::new();
    for (caller, ignored) in [("true", 0), ("trap '' XFSZ", 1)] {
        let line = format!("{caller}; exec \"$@\" run a -- grep SigIgn: /proc/self/status");
        let mut shell = Command::new("sh");
        shell.args(["-c", &line, "sh", env!("CARGO_BIN_EXE_leasehold")]);
        let done: Finished = shell
            .env("LEASEHOLD_STORE", sandbox.url())
            .output()
            .unwrap()
            .into();
        let mask = done.out.trim().strip_prefix("SigIgn:\t").unwrap();
        let mask = u64::from_str_radix(mask, 16).unwrap();
        assert_eq!(mask >> (SIGXFSZ - 1) & 1, ignored, "{caller}");
    }
}
