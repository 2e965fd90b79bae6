//! Which processes hold a lock of a folder, if not the one that acquired it.

use nix::sys::signal::{Signal, kill};
use serde_json::json;

use crate::sandbox::{Sandbox, Started, until};

/// They name what a user has to end, also after the hold was broken.
#[test]
fn processes_that_a_killed_run_leaves_are_named() {
    for options in [&[][..], &["--shared"]] {
        let sandbox = Sandbox::new();
        let line = "sleep 1000 & echo $! > first; sleep 1000 & echo $! > second; wait";
        let run = sandbox.started(&[&["run", "a"], options, &["--", "sh", "-c", line]].concat());
        let pids = [sandbox.pid("first"), sandbox.pid("second")];
        let ended = run.pid();
        run.signal(Signal::SIGKILL);
        drop(run);

        let [first, second] = pids;
        let named = format!("processes {first} (sleep), {second} (sleep)");
        until("only the two hold the lock", || {
            let shown = sandbox.done(&["show", "a"]).out;
            shown.contains(&format!(", which has ended; its {named} still hold it, "))
                && shown.contains(&format!("leasehold[{ended}]@"))
        });
        let processes = json!([
            {"pid": first.as_raw(), "program": "sleep"},
            {"pid": second.as_raw(), "program": "sleep"},
        ]);
        assert_eq!(
            sandbox.holders("a")[0]["process"],
            json!({"state": "ended", "processes": processes})
        );

        let token = sandbox.token("a");
        let broken = sandbox.done(&["break", "a", "--token", &token]);
        let end = format!("is granted the lock when its {named} have ended\n");
        assert!(broken.out.ends_with(&end), "{broken:?}");
        let shown = sandbox.show("a");
        assert_eq!(shown["holders"], json!([]));
        assert_eq!(shown["external_holders"], processes);
        for pid in pids {
            kill(pid, Signal::SIGKILL).unwrap();
        }
    }
}

#[test]
fn holder_in_another_pid_namespace_is_shown_once() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.leasehold(&["run", "a", "--", "cat"]);
    let mut unshared = std::process::Command::new("unshare");
    unshared
        .args(["--pid", "--fork", "--mount-proc"])
        .arg(run.get_program())
        .args(run.get_args())
        .current_dir(sandbox.path(""))
        .env("LEASEHOLD_STORE", sandbox.url());
    run = unshared;
    let run = Started::of(&mut run);
    until("the run holds the lock", || {
        !sandbox.holders("a").is_empty()
    });

    let shown = sandbox.show("a");
    assert_eq!(shown["external_holders"], json!([]), "{shown}");
    let holder = &shown["holders"][0];
    assert_eq!(holder["pid"], 1);
    assert_eq!(holder["process"]["state"], "other_namespace");
    let pid = &holder["process"]["processes"][0]["pid"];
    let text = sandbox.done(&["show", "a"]).out;
    let here = format!(", of another PID namespace, process {pid} here, ");
    assert!(text.contains(&here), "{text}");
    run.end().assert(0, "", "");
}
