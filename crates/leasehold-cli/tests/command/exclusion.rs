//! Which runs exclude each other, and which hold together.

use crate::sandbox::{Sandbox, until};

#[test]
fn exclusive_runs_never_overlap() {
    let sandbox = Sandbox::new();
    // `mkdir` fails if another run holds at the same time.
    let line = "mkdir alone && sleep 0.01 && rmdir alone";
    let runs: Vec<_> = (0..8)
        .map(|_| sandbox.started(&["run", "a", "--", "sh", "-c", line]))
        .collect();
    for run in runs {
        assert_eq!(run.wait().code(), 0);
    }
    assert!(sandbox.is_free("a"));
}

#[test]
fn shared_runs_hold_together_and_exclude_writers() {
    let sandbox = Sandbox::new();
    let readers = [
        sandbox.holder("a", &["--shared"]),
        sandbox.holder("a", &["--shared"]),
    ];
    sandbox
        .done(&["run", "a", "--wait", "0", "--", "true"])
        .assert(75, "", "held by leasehold[");
    let writer = sandbox.waiter(&["run", "a", "--", "true"]);
    sandbox
        .done(&["run", "a", "--shared", "--wait", "0", "--", "true"])
        .assert(75, "", "a was not granted immediately");
    for reader in readers {
        assert_eq!(reader.end().code(), 0);
    }
    assert_eq!(writer.wait().code(), 0);
}

#[test]
fn exclusive_run_excludes_shared_runs() {
    let sandbox = Sandbox::new();
    let writer = sandbox.holder("a", &[]);
    let reader = sandbox.waiter(&["run", "a", "--shared", "--", "echo", "read"]);
    assert_eq!(writer.end().code(), 0);
    assert_eq!(reader.wait().out, "read\n");
}

#[test]
fn slots_limit_concurrent_runs() {
    let sandbox = Sandbox::new();
    let one = sandbox.holder("a", &["--slots", "3"]);
    let two = sandbox.holder("a", &["--slots", "3"]);
    let pair = sandbox.waiter(&["run", "a", "--slots", "3", "--permits", "2", "--", "true"]);
    assert_eq!(one.end().code(), 0);
    assert_eq!(pair.wait().code(), 0);
    assert_eq!(two.end().code(), 0);
}

#[test]
fn run_and_flock_exclude_each_other() {
    let sandbox = Sandbox::new();
    sandbox.done(&["run", "a", "--", "true"]).assert(0, "", "");
    let holder = sandbox.holder("a", &[]);
    let flock = |command: &str| {
        std::process::Command::new("flock")
            .arg("-n")
            .arg(sandbox.path("store/a.lock"))
            .args(["sh", "-c", command])
            .status()
    };
    assert!(!flock("true").unwrap().success());
    holder.end();
    until("flock acquires the lock", || {
        flock("true").unwrap().success()
    });
    let inside = "$L show a > shown; $L run a --wait 0 -- true 2> log; echo $? > code; \
                  $L wait a --wait 0; echo $? > waited; $L wait a --wait 50ms; echo $? >> waited";
    let mut outer = std::process::Command::new("flock");
    outer
        .arg(sandbox.path("store/a.lock"))
        .args(["sh", "-c", inside]);
    outer
        .env("LEASEHOLD_STORE", sandbox.url())
        .env("L", env!("CARGO_BIN_EXE_leasehold"));
    outer.current_dir(sandbox.path("")).output().unwrap();
    assert_eq!(sandbox.read("code"), "75\n");
    assert_eq!(sandbox.read("waited"), "75\n75\n");
    let shown = sandbox.read("shown");
    let output = sandbox.read("log");
    assert!(
        shown.starts_with("a: in use") && shown.contains("held (flock): flock["),
        "{shown}"
    );
    assert!(
        output.contains("a was not granted immediately: held by flock["),
        "{output}"
    );
}

#[test]
fn every_name_is_a_distinct_lock_inside_the_store() {
    /// The command would refuse to acquire it.
    const BY_LIBRARY: &str = "a\nb";

    let sandbox = Sandbox::new();
    let long = "ü".repeat(256);
    let names = [
        "../../etc/x",
        "..",
        ".",
        "a b",
        "ü",
        BY_LIBRARY,
        "a}b{c*?[x]",
        "A",
        "a",
        "-x",
        "--",
        "%2F",
        "/",
        &long,
    ];
    let held = sandbox.held_by_library(BY_LIBRARY, "");
    let by_command = names.iter().filter(|&&name| name != BY_LIBRARY);
    let runs: Vec<_> = by_command
        .map(|name| sandbox.started(&["run", &format!("--name={name}"), "--", "cat"]))
        .collect();
    for name in names {
        until("the run holds the lock", || {
            !sandbox.holders(name).is_empty()
        });
    }
    let listed: Vec<serde_json::Value> =
        serde_json::from_str(&sandbox.done(&["ls", "--json"]).out).unwrap();
    let mut expected = names.map(str::to_owned);
    expected.sort();
    assert_eq!(
        listed
            .iter()
            .map(|line| line["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>(),
        expected
    );
    let table = sandbox.done(&["ls"]).out;
    assert_eq!(
        table.lines().count(),
        names.len() + 1,
        "one line per lock:\n{table}"
    );
    for run in runs {
        assert_eq!(run.end().code(), 0);
    }
    held.release().unwrap();
    let beside: Vec<_> = std::fs::read_dir(sandbox.path(""))
        .unwrap()
        .map(|file| file.unwrap().file_name())
        .collect();
    assert_eq!(beside, ["store"], "a file outside the store was created");
}
