//! What a script learns when the lock is lost that it holds by `leasehold acquire`.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::sandbox::{Finished, Sandbox, Started, is_alive, until};
use crate::scripts::BIN;

fn break_hold(sandbox: &Sandbox, name: &str) {
    let token = sandbox.token(name);
    let done = sandbox.done(&["break", name, "--token", &token]);
    assert_eq!(done.code(), 0, "{done:?}");
}

/// The descendants in other sessions end too, and no process beside the script does.
///
/// Shows G-38.
#[test]
fn lost_lock_ends_the_script_and_its_descendants() {
    let sandbox = Sandbox::new();
    let mut bystander = Started::of(Command::new("sleep").arg("1000"));
    let text = "leasehold acquire a --while-pid $$ --kill-after 300ms || exit
                setsid sh -c 'echo $$ > ignores; trap \"\" TERM; while :; do sleep 0.05; done' &
                sh -c 'echo $$ > sleeps; exec sleep 1000'
                echo not reached > log";
    let script = sandbox.start_script(text);
    let descendants = [sandbox.pid("ignores"), sandbox.pid("sleeps")];

    break_hold(&sandbox, "a");
    let next = ["run", "a", "--quiet", "--wait", "30s", "--", "echo", "next"];
    sandbox.done(&next).assert(0, "next\n", "");
    assert!(!descendants.into_iter().any(is_alive));
    script.wait().assert_signal(Signal::SIGTERM, "");
    assert_eq!(sandbox.read("log"), "");
    assert!(bystander.is_running());
}

/// A command under `leasehold run` is ended before the hold ends, and so is a script.
#[test]
fn script_ends_before_the_end_of_its_hold_and_check_agrees() {
    let sandbox = Sandbox::new();
    let text = "t=$(leasehold acquire a --while-pid $$ --max-hold 4s --kill-after 1750ms) || exit
                trap 'leasehold check a --token $t; echo $?
                      leasehold release a --token $t; echo $?; exit 0' TERM
                leasehold check a --token $t; echo $?
                while :; do sleep 0.05; done";
    let done = sandbox.run_script("sh", text);
    assert_eq!(
        (done.code(), done.out.as_str()),
        (0, "0\n76\n1\n"),
        "{done:?}"
    );
    let loss = "the lock was lost at ";
    assert_eq!(done.err.matches(loss).count(), 2, "{done:?}");
    assert!(done.err.contains("its time is about to end"), "{done:?}");

    let text =
        "leasehold acquire b --while-pid $$ --on-lost kill --max-hold 1s || exit; sleep 1000";
    let killed = sandbox.run_script("sh", text);
    killed.assert_signal(Signal::SIGKILL, "");
    until("the loss is noted with its reason", || {
        let check = sandbox.done(&["check", "b", "--token", killed.out.trim()]);
        check.code() == 76 && check.err.contains("its time is about to end")
    });
}

/// Shows G-38.
#[test]
fn script_that_runs_on_learns_when_and_why_the_lock_was_lost() {
    let sandbox = Sandbox::on_redis();
    let acquire = ["acquire", "a", "--while-pid"];
    let pid = std::process::id().to_string();
    let token = |options: &[&str]| {
        let done = sandbox.done(&[&acquire[..], &[&pid, "--on-lost", "ignore"], options].concat());
        assert_eq!(done.code(), 0, "{done:?}");
        done.out.trim().to_owned()
    };
    let check = |token: &str| sandbox.done(&["check", "a", "--token", token]);
    let release = |token: &str| sandbox.done(&["release", "a", "--token", token]);
    let unknown = "no claim holds it with this token";

    let first = token(&[]);
    check(&first).assert(0, "", "");
    check("1").assert(76, "", unknown);
    release("1").assert(1, "", unknown);
    release(&first).assert(0, "", "");
    release(&first).assert(1, "", unknown);

    let second = token(&[]);
    check(&first).assert(76, "", unknown);
    release(&first).assert(1, "", unknown);
    let holder = sandbox.holder_pid("a");
    break_hold(&sandbox, "a");
    until("the background process has ended", || !is_alive(holder));
    for done in [check(&second), release(&second)] {
        assert!(done.err.contains("the lock was lost at "), "{done:?}");
        assert!(done.err.contains("broke the lock"), "{done:?}");
        assert!(!done.err.contains(unknown), "{done:?}");
    }
    assert_eq!((check(&second).code(), release(&second).code()), (76, 1));
}

/// The store keeps the claim until its lease ends, and its holder may be gone before.
#[test]
fn hold_without_its_holder_is_not_held() {
    let mut sandbox = Sandbox::on_redis();
    sandbox.set("crash-grace=1s");
    let acquire = |name: &str| {
        let done = sandbox.done(&["acquire", name, "--detach", "--lease", "1h"]);
        assert_eq!(done.code(), 0, "{done:?}");
        done.out.trim().to_owned()
    };
    let check = |name: &str, token: &str| sandbox.done(&["check", name, "--token", token]);

    let lost = acquire("a");
    let holder = sandbox.holder_pid("a");
    sandbox.server().pause();
    until("the background process has ended", || !is_alive(holder));
    sandbox.server().resume();
    check("a", &lost).assert(76, "", "the lock was lost at ");
    let release = ["release", "a", "--token", &lost];
    sandbox
        .done(&release)
        .assert(1, "", "the lock was lost at ");

    let killed = acquire("b");
    check("b", &killed).assert(0, "", "");
    let holder = sandbox.holder_pid("b");
    nix::sys::signal::kill(holder, Signal::SIGKILL).unwrap();
    until("its connection is missing", || {
        sandbox.holders("b")[0]["connected"] == false
    });
    check("b", &killed).assert(76, "", "the connection of its holder is missing");
}

#[test]
fn check_knows_the_hold_of_a_run() {
    let sandbox = Sandbox::new();
    let line = format!("{BIN} check a --token $LEASEHOLD_TOKEN");
    let run = ["run", "a", "--", "sh", "-c", &line];
    sandbox.done(&run).assert(0, "", "");
}

/// A run adopts the orphans of its command, and so the background processes of `acquire`. If each
/// ended the others, their locks would be free before their owners have ended.
#[test]
fn lost_lock_spares_the_background_processes_of_other_locks() {
    let sandbox = Sandbox::new();
    let line = "leasehold acquire a --while-pid $PPID || exit
                leasehold acquire b --detach || exit
                echo $$ > pid; exec sleep 1000";
    let text = format!("exec leasehold run outer -- sh -c '{line}'");
    let script = sandbox.start_script(&text);
    let command = sandbox.pid("pid");

    break_hold(&sandbox, "a");
    script.wait().assert_signal(Signal::SIGTERM, "");
    until("the lock is free", || sandbox.is_free("a"));
    assert!(!is_alive(command));
    assert_eq!(sandbox.holders("b").len(), 1);
}

#[test]
fn owner_that_a_loss_could_not_end_is_refused() {
    let sandbox = Sandbox::new();
    let first = sandbox.done(&["acquire", "a", "--while-pid", "1"]);
    first.assert(64, "", "give --on-lost ignore");

    let owner = Started::of(Command::new("sleep").arg("1000"));
    let mut other = Command::new("setpriv");
    other.args(["--reuid=65534", "--clear-groups", BIN, "acquire", "a"]);
    other.args(["--while-pid", &owner.pid().to_string()]);
    let other: Finished = other.output().unwrap().into();
    other.assert(64, "", "belongs to another user");
}

/// The variable may name the folder of another user, as under `su`.
#[test]
fn notes_of_losses_are_private_and_removed_after_a_day() {
    let sandbox = Sandbox::new();
    let lose = || {
        let token = sandbox.done(&["acquire", "a", "--detach"]).out;
        let holder = sandbox.holder_pid("a");
        break_hold(&sandbox, "a");
        until("the background process has ended", || !is_alive(holder));
        token
    };
    let folder = sandbox.path("leasehold-lost");
    let notes = || -> Vec<_> {
        let entries = std::fs::read_dir(&folder).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };

    lose();
    let old = notes().remove(0);
    let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&old)), (0o700, 0o600));

    let touch = Command::new("touch")
        .args(["-d", "-25 hours"])
        .arg(&old)
        .status();
    assert!(touch.unwrap().success());
    lose();
    assert!(notes().len() == 1 && notes()[0] != old);

    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o770)).unwrap();
    let token = lose();
    assert!(notes().len() == 1);
    let release = ["release", "a", "--token", token.trim()];
    sandbox.done(&release).assert(1, "", "cannot release a");
}
