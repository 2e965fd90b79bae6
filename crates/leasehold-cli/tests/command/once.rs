//! `run --once`: a job that several machines start runs once, and a run that nobody did is seen.

use std::time::{Duration, Instant};

use lab_servers::Wire;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::sandbox::{Sandbox, Started, is_alive, is_stopped, until};
use crate::terminal::Terminal;

/// Runs the tests in a folder and on servers.
macro_rules! on_stores {
    ($($test:ident)*) => {
        mod file {
            $(#[test] fn $test() { super::$test(&super::Sandbox::new()); })*
        }
        mod redis {
            $(#[test] fn $test() { super::$test(&super::Sandbox::on_redis()); })*
        }
        mod postgres {
            $(#[test] fn $test() { super::$test(&crate::postgres::sandbox()); })*
        }
        mod zookeeper {
            $(#[test] fn $test() { super::$test(&crate::zookeeper::sandbox()); })*
        }
    };
}

on_stores! {
    job_that_five_processes_start_runs_once_for_each_id
    job_that_is_done_runs_nothing_and_says_by_whom
    failed_and_killed_jobs_run_again
    waiter_runs_the_job_of_a_killed_holder
    success_of_a_lost_hold_is_not_recorded
    job_that_was_asked_to_end_is_not_done
    job_that_gets_another_signal_after_that_is_not_done
    job_that_ends_by_a_signal_to_all_processes_is_not_done
    period_is_done_until_half_of_it_has_passed
    waiter_finds_a_job_of_more_than_half_a_period_done
    missed_job_is_reported
}

fn job_that_five_processes_start_runs_once_for_each_id(sandbox: &Sandbox) {
    let id_of_a_line_with_crlf = ["run", "--once", "1\r", "a", "--", "true"];
    sandbox
        .done(&id_of_a_line_with_crlf)
        .assert(64, "", "a carriage return (U+000D) at its end");
    for id in ["1", "3", "2", "1", "2"] {
        let line = format!("echo {id} >> ran");
        let started: Vec<_> = (0..5)
            .map(|_| sandbox.started(&["run", "-q", "--once", id, "a", "-c", &line]))
            .collect();
        for run in started {
            assert_eq!(run.end().code(), 0);
        }
    }
    assert_eq!(sandbox.read("ran"), "1\n3\n2\n");
    assert!(sandbox.is_free("a"));
}

fn job_that_is_done_runs_nothing_and_says_by_whom(sandbox: &Sandbox) {
    sandbox
        .done(&["run", "--once", "1", "a", "--", "true"])
        .assert(0, "", "");
    let again = ["run", "--once", "1", "a", "--", "echo", "again"];
    sandbox.done(&again).assert(0, "", "a is done: leasehold[");
    let quiet = sandbox.done(&["run", "-q", "--once", "1", "a", "--", "echo", "again"]);
    assert_eq!((quiet.code(), &*quiet.err), (0, ""));
    sandbox
        .done(&[
            "run",
            "--done-exit-code",
            "9",
            "--once",
            "1",
            "a",
            "--",
            "echo",
            "again",
        ])
        .assert(9, "", "a is done: ");

    // Without the option, and under another name or id, it runs.
    sandbox
        .done(&["run", "a", "--", "echo", "x"])
        .assert(0, "x\n", "");
    sandbox
        .done(&["run", "--once", "1", "b", "--", "echo", "x"])
        .assert(0, "x\n", "");
    sandbox
        .done(&["run", "--once", "0", "a", "--", "echo", "x"])
        .assert(0, "x\n", "");
    sandbox.done(&again).assert(0, "", "a is done: ");

    let shown = sandbox.show("a");
    assert_eq!(shown["last_success"]["id"], "0");
    assert_eq!(shown["last_failure"], Value::Null);
    let shown = sandbox.done(&["show", "a"]).out;
    assert!(shown.contains("\n  completed 0: leasehold["), "{shown}");
    let listed = sandbox.done(&["ls", "--once", "--json"]);
    let listed: Value = serde_json::from_str(&listed.out).unwrap();
    let names: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["name"])
        .collect();
    assert_eq!(names, ["a", "b"]);
    let listed = sandbox.done(&["ls", "--once", "b"]);
    assert!(
        listed.out.starts_with("b\n  completed 1: leasehold["),
        "{}",
        listed.out
    );
    assert_eq!(sandbox.done(&["ls", "--json"]).out.trim(), "[]");
}

fn failed_and_killed_jobs_run_again(sandbox: &Sandbox) {
    let fails = ["run", "-q", "--once", "1", "a", "--", "sh", "-c", "exit 3"];
    sandbox.done(&fails).assert(3, "", "");
    sandbox.done(&fails).assert(3, "", "");
    sandbox
        .done(&["run", "--once", "1", "a", "-c", "kill -9 $$"])
        .assert_signal(Signal::SIGKILL, "");
    sandbox
        .done(&["run", "--once", "1", "a", "--", "missing"])
        .assert(127, "", "missing");
    let shown = sandbox.show("a");
    assert_eq!(
        (&shown["last_success"], &shown["last_failure"]["id"]),
        (&Value::Null, &"1".into())
    );
    sandbox
        .done(&["run", "--once", "1", "a", "--", "echo", "x"])
        .assert(0, "x\n", "");
    sandbox.done(&fails).assert(0, "", "");
}

fn waiter_runs_the_job_of_a_killed_holder(sandbox: &Sandbox) {
    let line = "echo begun >> ran; exec sleep 60";
    let holder = sandbox.started(&["run", "--once", "1", "a", "-c", line]);
    until("the job runs", || sandbox.path("ran").exists());
    let waiters: Vec<_> = (0..2)
        .map(|_| sandbox.started(&["run", "-q", "--once", "1", "a", "-c", "echo x >> ran"]))
        .collect();
    until("both wait", || sandbox.waiters("a").len() == 2);
    holder.signal(Signal::SIGKILL);
    for waiter in waiters {
        assert_eq!(waiter.end().code(), 0);
    }
    let ran = sandbox.read("ran");
    assert_eq!(ran.lines().filter(|line| *line == "x").count(), 1, "{ran}");
}

fn success_of_a_lost_hold_is_not_recorded(sandbox: &Sandbox) {
    let line = "touch begun; until [ -e end ]; do sleep 0.01; done";
    let run = sandbox.started(&["run", "--on-lost", "ignore", "--once", "1", "a", "-c", line]);
    until("the job runs", || sandbox.path("begun").exists());
    let token = sandbox.token("a");
    assert_eq!(sandbox.done(&["break", "--token", &token, "a"]).code(), 0);
    sandbox.touch("end");
    let ended = run.end();
    assert_eq!(ended.code(), 76, "{}", ended.err);
    sandbox
        .done(&["run", "--once", "1", "a", "--", "echo", "x"])
        .assert(0, "x\n", "");
}

fn job_that_was_asked_to_end_is_not_done(sandbox: &Sandbox) {
    let line = "trap 'exit 0' TERM INT HUP QUIT; touch begun; while :; do sleep 0.01; done";
    let requests = [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ];
    for request in requests {
        let run = sandbox.started(&["run", "--once", "1", "a", "-c", line]);
        until("the job runs", || sandbox.path("begun").exists());
        std::fs::remove_file(sandbox.path("begun")).unwrap();
        run.signal(request);
        run.end().assert(0, "", "is not recorded as done");
    }
    sandbox
        .done(&["run", "--once", "1", "a", "--", "echo", "x"])
        .assert(0, "x\n", "");
}

/// Shows G-58.
fn job_that_gets_another_signal_after_that_is_not_done(sandbox: &Sandbox) {
    let line = "trap 'touch asked' TERM; trap 'exit 0' USR1; touch begun; \
                while :; do sleep 0.01; done";
    let run = sandbox.started(&["run", "--once", "1", "a", "-c", line]);
    until("the job runs", || sandbox.path("begun").exists());
    run.signal(Signal::SIGTERM);
    until("the job goes on", || sandbox.path("asked").exists());
    run.signal(Signal::SIGUSR1);
    run.end().assert(0, "", "is not recorded as done");
}

/// systemd and others send the signal to leasehold and to the job at the same time. leasehold is
/// stopped meanwhile, so that it finds the signal and the end of the job together.
fn job_that_ends_by_a_signal_to_all_processes_is_not_done(sandbox: &Sandbox) {
    let line = "echo $$ > pid; until [ -e end ]; do sleep 0.01; done; rm end pid";
    for _ in 0..5 {
        let run = sandbox.started(&["run", "--once", "1", "a", "-c", line]);
        let command = sandbox.pid("pid");
        run.signal(Signal::SIGSTOP);
        until("leasehold is stopped", || is_stopped(run.pid()));
        run.signal(Signal::SIGTERM);
        sandbox.touch("end");
        until("the job has ended", || !is_alive(command));
        run.signal(Signal::SIGCONT);
        run.end().assert(0, "", "is not recorded as done");
    }
}

fn period_is_done_until_half_of_it_has_passed(sandbox: &Sandbox) {
    let run =
        |period: &str| sandbox.done(&["run", "-q", "--once-per", period, "a", "--", "echo", "x"]);
    run("1d").assert(0, "x\n", "");
    run("1d").assert(0, "", "");
    // Another process starts later than after half of a microsecond.
    run("0.000001").assert(0, "x\n", "");
    run("90d").assert(64, "", "longer than the store keeps a record");
    assert_eq!(sandbox.show("a")["last_success"]["id"], Value::Null);
}

/// A run that waited while the job was done does not run it again, however long ago it began.
///
/// Shows G-58.
fn waiter_finds_a_job_of_more_than_half_a_period_done(sandbox: &Sandbox) {
    let run = |line: &str| sandbox.started(&["run", "--once-per", "1s", "a", "-c", line]);
    let first = run("touch begun; sleep 1; until [ -e end ]; do sleep 0.01; done");
    until("the job runs", || sandbox.path("begun").exists());
    let second = run("echo again");
    until("the second waits", || sandbox.waiters("a").len() == 1);
    sandbox.touch("end");
    first.end().assert(0, "", "");
    second.end().assert(0, "", "a is done: leasehold[");
}

fn missed_job_is_reported(sandbox: &Sandbox) {
    let missed = |within: &str| sandbox.done(&["show", "--json", "--missed-after", within, "a"]);
    let first = missed("26h");
    assert_eq!(first.code(), 3);
    assert!(
        first
            .err
            .contains("a was not completed within 26h: no completion"),
        "{}",
        first.err
    );
    sandbox
        .done(&["run", "--once", "1", "a", "--", "false"])
        .assert(1, "", "");
    assert_eq!(missed("26h").code(), 3, "a failure is no completion");

    sandbox
        .done(&["run", "--once", "1", "a", "--", "true"])
        .assert(0, "", "");
    assert_eq!(missed("26h").code(), 0);
    until("a millisecond has passed", || missed("0.001").code() == 3);
}

/// The sender of the signal begins with the job, and leasehold notes the end of the job before it
/// receives the signal.
///
/// Shows G-58.
#[test]
fn signal_just_after_the_end_of_a_job_counts() {
    let sandbox = Sandbox::new();
    let line = "leasehold=$PPID; (while kill -0 $$; do :; done; kill $leasehold) 2>&- & exit 0";
    let mut ids = 1..;
    until("a signal arrives before the record is written", || {
        let id = ids.next().unwrap().to_string();
        let run = sandbox.done(&["run", "--once", &id, "a", "-c", line]);
        run.err.contains("is not recorded as done")
    });
}

/// The terminal stays with leasehold, so the key reaches leasehold too.
///
/// Shows G-58.
#[test]
fn job_that_the_keyboard_interrupts_is_not_done() {
    let sandbox = Sandbox::new();
    let line = "trap \"exit 0\" INT; echo $$ > pid; while :; do sleep 0.01; done";
    let mut terminal = Terminal::shell(&sandbox);
    terminal.types(&format!("$LEASEHOLD run --once 1 a -- sh -c '{line}'\n"));
    sandbox.pid("pid");
    terminal.types("\x03");
    terminal.until_shows("is not recorded as done");
    sandbox
        .done(&["run", "--once", "1", "a", "--", "echo", "x"])
        .assert(0, "x\n", "");
}

/// Each refusal says why.
#[test]
fn doubtful_combinations_are_refused() {
    let sandbox = Sandbox::new();
    let other = format!("file:{}", sandbox.path("other").display());
    for (options, reason) in [
        (&["b"][..], "each name has a record of its own"),
        (
            &["--shared"],
            "--shared: sharing holders run at the same time",
        ),
        (&["--slots", "2"], "--slots: several holders"),
        (&["--reentrant"], "--reentrant: the outer run"),
        (
            &["--hold-at-least", "1s"],
            "--hold-at-least: the record replaces it",
        ),
        (
            &["--also-store", &other],
            "--also-store: each store has a record",
        ),
        (&["--once-per", "1d"], "cannot be used with"),
    ] {
        let mut arguments = vec!["run", "--once", "1", "a"];
        arguments.extend(options);
        arguments.extend(["--", "echo", "x"]);
        sandbox.done(&arguments).assert(64, "", reason);
    }
    for id in ["", &"x".repeat(65)] {
        sandbox
            .done(&["run", "--once", id, "a", "--", "echo", "x"])
            .assert(64, "", "1 to 64 bytes");
    }
    for subcommand in ["hold", "acquire"] {
        sandbox
            .done(&[subcommand, "--once", "1", "a"])
            .assert(64, "", "--once");
    }
}

#[test]
fn record_of_a_later_version_is_an_error() {
    let sandbox = Sandbox::on_redis();
    let key = "leasehold:{a}:record";
    sandbox.server().command(&["SET", key, "v2\n"]);
    for arguments in [
        &["show", "a"][..],
        &["show", "--missed-after", "26h", "a"],
        &["ls", "--once"],
        &["run", "--once", "1", "a", "--", "echo", "x"],
    ] {
        let done = sandbox.done(arguments);
        done.assert(64, "", "newer than this program");
    }
    assert_eq!(sandbox.server().command(&["GET", key]).text(), "v2\n");
}

/// What cannot be read is named, and costs the others nothing.
///
/// Shows G-58.
#[test]
fn records_are_listed_beside_one_that_cannot_be_read() {
    let folder = Sandbox::new();
    are_listed_beside_one(&folder, 70, "not a record of leasehold", || {
        std::fs::write(folder.path("store/b.record"), "no record").unwrap();
    });
    let redis = Sandbox::on_redis();
    let server = redis.server();
    are_listed_beside_one(&redis, 70, "its record is not one of leasehold", || {
        server.command(&["SET", "leasehold:{b}:record", "x"]);
    });
    are_listed_beside_one(&redis, 64, "newer than this program", || {
        server.command(&["SET", "leasehold:{b}:record", "v2\n"]);
    });
    let postgres = crate::postgres::sandbox();
    are_listed_beside_one(&postgres, 70, "its record is not one of leasehold", || {
        crate::postgres::damage_record(&postgres, "b");
    });
    // Here it is the record of another user.
    let zookeeper = crate::zookeeper::sandbox();
    are_listed_beside_one(&zookeeper, 0, "cannot read the record of \"b\"", || {
        let theirs = zookeeper.url().replace("//", "//them:pw@") + "?acl=creator";
        let job = ["run", "--store", &theirs, "--once", "1", "b", "--", "true"];
        zookeeper.done(&job).assert(0, "", "");
    });
}

fn are_listed_beside_one(sandbox: &Sandbox, code: i32, reason: &str, spoil_b: impl FnOnce()) {
    for name in ["a", "c"] {
        let job = ["run", "-q", "--once", "1", name, "--", "true"];
        sandbox.done(&job).assert(0, "", "");
    }
    spoil_b();

    let listed = sandbox.done(&["ls", "--once"]);
    let names = listed.out.lines().filter(|line| !line.starts_with(' '));
    assert_eq!(names.collect::<Vec<_>>(), ["a", "c"], "{listed:?}");
    assert!(listed.err.contains(reason), "{listed:?}");
    let json = sandbox.done(&["ls", "--once", "--json"]);
    let json_names = serde_json::from_str::<Value>(&json.out).unwrap();
    assert_eq!(json_names.as_array().unwrap().len(), 2);
    assert_eq!((listed.code(), json.code()), (code, code), "{listed:?}");
}

/// The store cannot be reached from one of two machines while the other one runs the job.
///
/// Shows G-58.
#[test]
fn job_that_is_done_while_the_store_is_out_of_reach_does_not_run_again() {
    const PERIOD: Duration = Duration::from_millis(600);
    let ours = Sandbox::on_redis();
    let wire = Wire::to(ours.server().address());
    wire.refuse(true);
    let theirs = Sandbox::at(wire.url_of("redis"));
    let job = |sandbox: &Sandbox| {
        sandbox.started(&["run", "--once-per", "600ms", "a", "--", "echo", "ran"])
    };

    let mut late = job(&theirs);
    late.wait_for_output("the store is unavailable");
    job(&ours).wait().assert(0, "ran\n", "");
    let done = Instant::now();
    until("half of the period has passed", || done.elapsed() > PERIOD);
    wire.refuse(false);
    late.wait().assert(0, "", "a is done");
}

#[test]
fn store_without_records_is_refused() {
    let mut sandbox = Sandbox::on_redis();
    sandbox.set("dialect=plain");
    let reason = "this store or format has no records of completed jobs; use redis:";
    sandbox
        .done(&["run", "--once", "1", "a", "--", "echo", "x"])
        .assert(64, "", reason);
    sandbox
        .done(&["show", "--missed-after", "1h", "a"])
        .assert(64, "", reason);
    sandbox.done(&["ls", "--once"]).assert(64, "", reason);
    assert_eq!(sandbox.done(&["show", "a"]).code(), 0);
}

/// The server is silent from the end of COMMAND on.
#[test]
fn success_that_cannot_be_recorded_says_that_it_runs_again() {
    let sandbox = Sandbox::on_redis();
    let ended = job_beside_a_silent_store(&sandbox, 0).end();
    assert!([69, 76].contains(&ended.code()), "{}", ended.err);
    assert!(
        ended.err.contains("COMMAND succeeded, but no reply shows"),
        "{}",
        ended.err
    );
}

/// As after a run without --once: the calling script must not wait for a silent store.
#[test]
fn failure_does_not_wait_long_for_a_silent_store() {
    let sandbox = Sandbox::on_redis();
    let run = job_beside_a_silent_store(&sandbox, 3);
    run.end().assert(3, "", "the store sent no reply within 1s");
}

#[test]
fn signal_ends_the_wait_for_the_record_of_a_success() {
    let sandbox = Sandbox::on_redis();
    let mut run = job_beside_a_silent_store(&sandbox, 0);
    run.wait_for_output("a signal ends this wait");
    run.signal(Signal::SIGTERM);
    run.wait()
        .assert_signal(Signal::SIGTERM, "COMMAND succeeded, but no reply shows");
}

/// Starts a job that ends with this exit code after its server has become silent.
fn job_beside_a_silent_store(sandbox: &Sandbox, code: i32) -> Started {
    let line = format!("touch begun; until [ -e end ]; do sleep 0.01; done; exit {code}");
    let run = sandbox.started(&["run", "--once", "1", "a", "-c", &line]);
    until("the job runs", || sandbox.path("begun").exists());
    sandbox.server().pause();
    sandbox.touch("end");
    run
}
