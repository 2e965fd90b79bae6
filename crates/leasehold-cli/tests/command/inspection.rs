//! ls, show, watch and break.

use std::io::{BufRead, BufReader};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::sandbox::Sandbox;

fn fields(value: &Value) -> Vec<&str> {
    let mut fields: Vec<_> = value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    fields.sort_unstable();
    fields
}

#[test]
fn showing_a_free_lock_succeeds() {
    let sandbox = Sandbox::new();
    sandbox
        .done(&["show", "a"])
        .assert(0, "a: free, last token none yet\n", "");
    assert_eq!(
        sandbox.show("a"),
        serde_json::json!({"name": "a", "last_token": null, "holders": [], "waiters": [], "external_holders": []})
    );
    sandbox
        .done(&["ls"])
        .assert(0, "NAME  HOLDERS  WAITERS  SINCE  HOLDER\n", "");
    sandbox.done(&["ls", "--json"]).assert(0, "[]\n", "");
}

#[test]
fn holders_and_waiters_are_shown_with_all_their_fields() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("a", &["--label", "first"]);
    let _second = sandbox.waiter(&["run", "a", "--shared", "--", "true"]);
    let third = sandbox.waiter(&["run", "a", "--", "true"]);

    let line = sandbox.show("a");
    let (holder, waiter) = (&line["holders"][0], &line["waiters"][1]);
    let claimant = ["capacity", "host", "label"];
    assert_eq!(
        fields(&line),
        [
            "external_holders",
            "holders",
            "last_token",
            "name",
            "waiters"
        ]
    );
    assert_eq!(
        fields(holder),
        [
            &claimant[..],
            &["pid", "program", "share", "since", "token", "weight"]
        ]
        .concat()
    );
    assert_eq!(
        fields(waiter),
        [
            &claimant[..],
            &["pid", "position", "program", "share", "since", "weight"]
        ]
        .concat()
    );
    assert_eq!(
        (&holder["label"], &holder["program"]),
        (&"first".into(), &"leasehold".into())
    );
    assert_eq!(
        (&holder["share"], &holder["token"]),
        (&"exclusive".into(), &line["last_token"])
    );
    assert_eq!(
        (&waiter["position"], &waiter["pid"], &waiter["label"]),
        (&2.into(), &third.pid().as_raw().into(), &"true".into())
    );
    assert_eq!(line["waiters"][0]["share"], "shared");
    let since: jiff::Timestamp = holder["since"].as_str().unwrap().parse().unwrap();
    assert!(since <= jiff::Timestamp::now());

    let text = sandbox.done(&["show", "a"]).out;
    let starts = [
        "a: in use, last token ",
        "  held: leasehold[",
        "  waiting 1: leasehold[",
        "  waiting 2: leasehold[",
    ];
    assert_eq!(text.lines().count(), starts.len());
    assert!(
        text.lines()
            .zip(starts)
            .all(|(line, start)| line.starts_with(start)),
        "{text}"
    );
}

#[test]
fn ls_lists_names_with_the_prefix() {
    let sandbox = Sandbox::new();
    let _holders = [
        sandbox.holder("jobs/a", &[]),
        sandbox.holder("jobs/b", &[]),
        sandbox.holder("x", &[]),
    ];
    let _waiter = sandbox.waiter(&["run", "jobs/b", "--", "true"]);
    sandbox.done(&["run", "jobs/free", "--", "true"]);
    let table = sandbox.done(&["ls", "jobs/"]).out;
    let words: Vec<Vec<_>> = table
        .lines()
        .map(|line| line.split_whitespace().take(3).collect())
        .collect();
    assert_eq!(
        words,
        [
            ["NAME", "HOLDERS", "WAITERS"],
            ["jobs/a", "1", "0"],
            ["jobs/b", "1", "1"]
        ]
    );
    let listed: Value =
        serde_json::from_str(&sandbox.done(&["ls", "jobs/", "--json"]).out).unwrap();
    assert_eq!(listed[1], sandbox.show("jobs/b"));
    assert_eq!(listed.as_array().unwrap().len(), 2);
}

#[test]
fn ls_reports_damaged_locks_and_lists_the_others() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("b", &[]);
    std::fs::write(sandbox.path("store/a.queue"), "not ours").unwrap();
    let done = sandbox.done(&["ls"]);
    assert_eq!(
        (done.code(), done.out.lines().count()),
        (70, 2),
        "{}",
        done.out
    );
    assert!(
        done.err.contains("cannot inspect \"a\"") && done.err.contains("not a queue file"),
        "{}",
        done.err
    );
    holder.end();
}

#[test]
fn watch_prints_every_change_until_interrupted() {
    let sandbox = Sandbox::new();
    let mut watch = sandbox.started(&["watch", "a", "--json"]);
    let mut lines = BufReader::new(watch.out()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let free = next();
    assert_eq!(
        fields(&free),
        [
            "at",
            "external_holders",
            "holders",
            "last_token",
            "name",
            "waiters"
        ]
    );
    let holder = sandbox.holder("a", &[]);
    let held = next();
    assert_eq!(
        (held["holders"].as_array().unwrap().len(), &held["name"]),
        (1, &"a".into())
    );
    holder.end();
    assert_eq!(next()["holders"], free["holders"]);
    watch.signal(Signal::SIGINT);
    assert_eq!(watch.wait().code(), 130);
}

#[test]
fn watch_ends_quietly_when_its_reader_closes() {
    let sandbox = Sandbox::new();
    let mut watch = sandbox.started(&["watch", "a"]);
    let mut first = String::new();
    BufReader::new(watch.out()).read_line(&mut first).unwrap();
    let _holder = sandbox.holder("a", &[]);
    let ended = watch.wait();
    assert_eq!((ended.code(), ended.err.as_str()), (141, ""));
}

#[test]
fn break_with_wrong_token_names_the_holder() {
    let sandbox = Sandbox::new();
    sandbox
        .done(&["break", "a", "--token", "7"])
        .assert(1, "", "nobody holds a with token 7");
    let holder = sandbox.holder("a", &[]);
    let token = sandbox.holders("a")[0]["token"].to_string();
    sandbox
        .done(&["break", "a", "--token", "7"])
        .assert(1, "", &format!("token {token}"));
    holder.end().assert(0, "", "");
}

#[test]
fn store_is_chosen_by_flag_or_environment() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("a", &[]);
    let elsewhere = format!("file:{}", sandbox.path("elsewhere").display());
    sandbox
        .done(&["ls", "--store", &elsewhere, "--json"])
        .assert(0, "[]\n", "");
    let mut ls = sandbox.leasehold(&["ls", "--json"]);
    let state = sandbox.path("state");
    assert_eq!(
        ls.env_remove("LEASEHOLD_STORE")
            .env("XDG_STATE_HOME", &state)
            .output()
            .unwrap()
            .stdout,
        b"[]\n"
    );
    assert!(state.join("leasehold").is_dir());
}
