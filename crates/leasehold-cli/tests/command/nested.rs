//! Runs inside a run.

use nix::sys::signal::Signal;

use crate::sandbox::{Finished, Sandbox, until};

const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");

#[test]
fn nested_run_of_same_name_is_refused() {
    let sandbox = Sandbox::new();
    let done = sandbox.done(&["run", "a", "--", LEASEHOLD, "run", "a", "--", "echo", "ran"]);
    done.assert(
        64,
        "",
        "leasehold: this runs inside a run that holds a, and would wait for itself; \
         add --reentrant",
    );
}

#[test]
fn nested_wait_for_the_same_name_is_refused() {
    let sandbox = Sandbox::new();
    let waited = |limit| {
        let wait = [LEASEHOLD, "wait", "a", "-w", limit];
        sandbox.done(&[&["run", "a", "--"], &wait[..]].concat())
    };
    waited("60s").assert(
        64,
        "",
        "inside a run that holds a, and would wait for itself",
    );
    waited("0").assert(75, "", "a is not free: ");
}

#[test]
fn nested_run_of_same_name_two_levels_up_is_refused() {
    let sandbox = Sandbox::new();
    let line = format!("{LEASEHOLD} run b -- {LEASEHOLD} run a -- echo ran");
    sandbox.done(&["run", "a", "--", "sh", "-c", &line]).assert(
        64,
        "",
        "inside a run that holds a",
    );
}

#[test]
fn nested_run_by_another_path_of_the_store_is_refused() {
    let sandbox = Sandbox::new();
    std::os::unix::fs::symlink(sandbox.path("store"), sandbox.path("link")).unwrap();
    let link = format!("file:{}", sandbox.path("link").display());
    let inner = [LEASEHOLD, "run", "a", "--store", &link, "--", "echo", "ran"];
    let done = sandbox.done(&[&["run", "a", "--"], &inner[..]].concat());
    done.assert(64, "", "inside a run that holds a");
}

#[test]
fn reentrant_run_uses_the_outer_hold() {
    let sandbox = Sandbox::new();
    let line = format!(
        "{LEASEHOLD} run b -- {LEASEHOLD} run a --reentrant -- \
         sh -c '{LEASEHOLD} show a --json > shown; echo $LEASEHOLD_NAME; \
         echo $LEASEHOLD_TOKEN; exit 5'"
    );
    let done = sandbox.done(&["run", "a", "--", "sh", "-c", &line]);
    let shown: serde_json::Value = serde_json::from_str(&sandbox.read("shown")).unwrap();
    let token = shown["last_token"].as_str().unwrap();
    done.assert(5, &format!("a\n{token}\n"), "");
    assert_eq!(
        shown["holders"].as_array().unwrap().len(),
        1,
        "nested runs share one hold"
    );
}

/// Shows G-39.
#[test]
fn reentrant_run_has_the_slot_numbers_of_its_own_lock() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("gpu", &["--slots", "4"]);
    let report = "sh -c 'echo \"$LEASEHOLD_NAME <$LEASEHOLD_SLOT>\"'";
    let inner = format!("{LEASEHOLD} run --reentrant --slots 4 gpu -- {report}");
    for between in ["--slots 2 tpu", "other"] {
        let line = format!("{LEASEHOLD} run {between} -- {inner}");
        sandbox
            .done(&["run", "--slots", "4", "gpu", "-c", &line])
            .assert(0, "gpu <1>\n", "");
    }

    let inner = format!("{LEASEHOLD} run --reentrant other -- {report}");
    let line = format!("{LEASEHOLD} run --slots 2 tpu -- {inner}");
    sandbox
        .done(&["run", "other", "-c", &line])
        .assert(0, "other <>\n", "");
    holder.end().assert(0, "", "");
}

/// A nested run works under the hold of the outer run, so both have the same claim.
#[test]
fn command_finds_claim_id_and_nested_run_finds_the_same() {
    let sandbox = Sandbox::new();
    let line = format!(
        "echo $LEASEHOLD_CLAIM; {LEASEHOLD} run a --reentrant -- sh -c 'echo $LEASEHOLD_CLAIM'"
    );
    let one = sandbox.done(&["run", "a", "--", "sh", "-c", &line]).out;
    let two = sandbox.done(&["run", "a", "--", "sh", "-c", &line]).out;
    let ids = [&one, &two].map(|out| out.lines().collect::<Vec<_>>());
    for id in ids.concat() {
        id.parse::<leasehold::ClaimId>().unwrap();
    }
    assert_eq!((ids[0][0], ids[1][0]), (ids[0][1], ids[1][1]));
    assert_ne!(ids[0][0], ids[1][0], "two grants have one claim id");
}

#[test]
fn reentrant_run_does_not_upgrade_a_reader() {
    let sandbox = Sandbox::new();
    let inner = [LEASEHOLD, "run", "a", "--reentrant"];
    let exclusive = [&["run", "a", "--shared", "--"], &inner[..], &["--", "true"]].concat();
    sandbox.done(&exclusive).assert(
        64,
        "",
        "exclusive requested inside a run of a that holds shared",
    );
    let shared = [
        &["run", "a", "--"],
        &inner[..],
        &["--shared", "--", "echo", "ran"],
    ]
    .concat();
    sandbox.done(&shared).assert(0, "ran\n", "");
}

#[test]
fn reentrant_run_without_outer_run_acquires() {
    let sandbox = Sandbox::new();
    let line = format!("{LEASEHOLD} show a");
    let done = sandbox.done(&["run", "a", "--reentrant", "--", "sh", "-c", &line]);
    assert!(done.out.starts_with("a: in use"), "{done:?}");
}

#[test]
fn nested_runs_of_other_names_and_stores_acquire() {
    let sandbox = Sandbox::new();
    let other = format!("file:{}", sandbox.path("other").display());
    let line =
        format!("{LEASEHOLD} run b -- echo b; {LEASEHOLD} run a --store {other} -- echo other");
    sandbox
        .done(&["run", "a", "--", "sh", "-c", &line])
        .assert(0, "b\nother\n", "");
}

#[test]
fn stale_environment_blocks_no_run() {
    let sandbox = Sandbox::new();
    let held = sandbox
        .done(&["run", "a", "--", "printenv", "LEASEHOLD_HELD"])
        .out;
    assert!(held.contains("\"name\":\"a\""), "{held}");
    for held in [held.trim(), "nonsense", "[]", r#"[{"store":1}]"#, ""] {
        let mut run = sandbox.leasehold(&["run", "a", "--", "echo", "ran"]);
        assert_eq!(
            run.env("LEASEHOLD_HELD", held).output().unwrap().stdout,
            b"ran\n",
            "{held}"
        );
    }
}

/// The store keeps the hold of a killed run without a watchdog for the crash grace. Work that joins
/// it would go on after the next grant.
///
/// Shows G-01, G-38.
#[test]
fn reentrant_run_does_not_join_the_hold_of_a_killed_run() {
    let mut sandbox = Sandbox::on_redis();
    sandbox.set("crash-grace=30m");
    let line = "printenv LEASEHOLD_HELD > written; mv written held; cat";
    let options = ["--lease", "2h", "--on-lost", "ignore"];
    let run = [&["run", "a"], &options[..], &["--", "sh", "-c", line]].concat();
    let outer = sandbox.started(&run);
    until("the run holds the lock", || sandbox.path("held").exists());
    let joined = |option: &str| {
        let mut run = sandbox.leasehold(&["run", option, "a", "--", "echo", "ran"]);
        let done = run.env("LEASEHOLD_HELD", sandbox.read("held").trim());
        Finished::from(done.output().unwrap())
    };
    joined("--reentrant").assert(0, "ran\n", "");

    outer.signal(Signal::SIGKILL);
    until("its connection is missing", || {
        sandbox.holders("a")[0]["connected"] == false
    });
    for option in ["--reentrant", "-n"] {
        joined(option).assert(76, "", "the connection of its holder is missing");
    }
}

/// Not every format has tokens that no other claim gets.
#[test]
fn hold_of_another_claim_with_the_same_token_is_not_joined() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("a", &[]);
    let held = serde_json::json!([{
        "store": sandbox.url(),
        "name": "a",
        "token": sandbox.token("a").parse::<u64>().unwrap(),
        "claim": leasehold::store::draw_claim_id().to_string(),
    }]);
    let mut run = sandbox.leasehold(&["run", "-n", "--reentrant", "a", "--", "echo", "ran"]);
    let done = run.env("LEASEHOLD_HELD", held.to_string());
    Finished::from(done.output().unwrap()).assert(75, "", "a was not granted");
    holder.end().assert(0, "", "");
}
