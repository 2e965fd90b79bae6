//! The files of free locks, and `leasehold gc`.

use std::fs;

use nix::sys::signal::Signal;

use crate::sandbox::{Sandbox, Started, until};

fn files(sandbox: &Sandbox) -> Vec<String> {
    let entries = fs::read_dir(sandbox.path("store")).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn run_leaves_no_file_of_its_name() {
    let sandbox = Sandbox::new();
    let long = "n".repeat(500);
    for name in ["a", "orders/42", &long] {
        sandbox.done(&["run", name, "--", "true"]).assert(0, "", "");
    }
    assert_eq!(files(&sandbox), [".counter", ".members"]);
    let members = fs::read_dir(sandbox.path("store/.members")).unwrap();
    assert_eq!(members.count(), 0);
}

#[test]
fn last_of_several_users_removes_the_files() {
    let sandbox = Sandbox::new();
    let first = sandbox.holder("a", &["--shared"]);
    let second = sandbox.holder("a", &["--shared"]);
    assert_eq!(first.end().code(), 0);
    assert_eq!(
        files(&sandbox),
        [".counter", ".members", "a.lock", "a.queue"]
    );

    assert_eq!(second.end().code(), 0);
    assert_eq!(files(&sandbox), [".counter", ".members"]);
}

#[test]
fn gc_removes_files_of_killed_runs_and_keeps_those_in_use() {
    let sandbox = Sandbox::new();
    let held = sandbox.holder("held", &[]);
    let killed = sandbox.holder("killed", &[]);
    killed.signal(Signal::SIGKILL);
    drop(killed);
    until("the holder has ended", || sandbox.is_free("killed"));
    assert!(sandbox.path("store/killed.queue").exists());

    let done = sandbox.done(&["gc"]);
    let counts = "removed the files of 1 free locks; 1 locks are in use; 0 were skipped\n";
    done.assert(0, counts, "");
    assert_eq!(
        files(&sandbox),
        [".counter", ".members", "held.lock", "held.queue"]
    );
    held.end().assert(0, "", "");
}

#[test]
fn gc_on_a_store_without_files_exits_64() {
    let server = lab_servers::Redis::start();
    let sandbox = Sandbox::at(server.url());
    let done = sandbox.done(&["gc"]);
    done.assert(64, "", "free locks leave nothing in this store");
}

/// The broken holder still has the lock file locked when `break` finds the queue empty.
#[test]
fn broken_hold_leaves_no_file() {
    let sandbox = Sandbox::new();
    for on_lost in ["kill", "ignore"] {
        let holder = sandbox.holder("a", &["--on-lost", on_lost]);
        let broken = sandbox.done(&["break", "a", "--token", &sandbox.token("a")]);
        assert_eq!(broken.code(), 0, "{broken:?}");
        let next = sandbox.started(&["run", "a", "--", "true"]);
        drop(holder.end());
        assert_eq!(next.end().code(), 0);

        sandbox.done(&["gc"]);
        assert_eq!(files(&sandbox), [".counter", ".members"], "{on_lost}");
    }
}

/// flock(1) has inherited descriptors of leasehold, but does not use the store.
#[test]
fn lock_file_that_flock_holds_under_run_stays() {
    let sandbox = Sandbox::new();
    let held = sandbox.holder("a", &["--shared"]);
    let file = sandbox.path("store/a.lock");
    let mut outer = sandbox.leasehold(&["run", "outer", "--", "flock", "--shared"]);
    outer.arg(&file).args(["sh", "-c", "echo > ready; cat"]);
    let flock = Started::of(&mut outer);
    until("flock holds the file", || sandbox.path("ready").exists());

    held.end().assert(0, "", "");
    assert_eq!(fs::read(&file).unwrap(), b"");
    flock.end().assert(0, "", "");
    assert!(file.exists());
}

#[test]
fn gc_removes_folders_that_were_never_finished() {
    let sandbox = Sandbox::new();
    let long = "n".repeat(300);
    let holder = sandbox.holder(&long, &[]);
    let inner = format!("store/{}+/.new-b", "n".repeat(200));
    for (folder, age) in [
        ("store/.new-a", "-2 minutes"),
        (&inner, "-2 minutes"),
        ("store/.new-c", "-1 second"),
    ] {
        fs::create_dir(sandbox.path(folder)).unwrap();
        let date = format!("--date={age}");
        let mut touch = std::process::Command::new("touch");
        touch.args([date.as_ref(), sandbox.path(folder).as_os_str()]);
        assert!(touch.status().unwrap().success());
    }

    sandbox.done(&["gc"]);
    assert!(!sandbox.path("store/.new-a").exists());
    assert!(!sandbox.path(&inner).exists());
    assert!(
        sandbox.path("store/.new-c").exists(),
        "its maker may be alive"
    );
    holder.end().assert(0, "", "");
}
