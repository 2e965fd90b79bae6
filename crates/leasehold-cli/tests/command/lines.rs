//! ls, show, watch and break.

use std::io::{BufRead, BufReader};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::place::Place;

fn fields(value: &Value) -> Vec<&str> {
    let mut fields: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    fields
}

#[test]
fn a_free_lock_is_no_error() {
    let place = Place::new();
    place.done(&["show", "a"]).assert(0, "a: free, last token none yet\n", "");
    assert_eq!(
        place.show("a"),
        serde_json::json!({"name": "a", "last_token": null, "holders": [], "waiters": [], "strangers": []})
    );
    place.done(&["ls"]).assert(0, "NAME  HOLDERS  WAITERS  SINCE  HOLDER\n", "");
    place.done(&["ls", "--json"]).assert(0, "[]\n", "");
}

#[test]
fn holders_and_waiters_are_shown_with_all_their_fields() {
    let place = Place::new();
    let _holder = place.holder("a", &["--label", "first"]);
    let _second = place.waiter(&["run", "a", "--shared", "--", "true"]);
    let third = place.waiter(&["run", "a", "--", "true"]);

    let line = place.show("a");
    let (holder, waiter) = (&line["holders"][0], &line["waiters"][1]);
    let claimant = ["capacity", "host", "label"];
    assert_eq!(fields(&line), ["holders", "last_token", "name", "strangers", "waiters"]);
    assert_eq!(fields(holder), [&claimant[..], &["pid", "program", "share", "since", "token", "weight"]].concat());
    assert_eq!(fields(waiter), [&claimant[..], &["pid", "position", "program", "share", "since", "weight"]].concat());
    assert_eq!((&holder["label"], &holder["program"]), (&"first".into(), &"leasehold".into()));
    assert_eq!((&holder["share"], &holder["token"]), (&"exclusive".into(), &line["last_token"]));
    assert_eq!(
        (&waiter["position"], &waiter["pid"], &waiter["label"]),
        (&2.into(), &third.pid().as_raw().into(), &"true".into())
    );
    assert_eq!(line["waiters"][0]["share"], "shared");
    let since: jiff::Timestamp = holder["since"].as_str().unwrap().parse().unwrap();
    assert!(since <= jiff::Timestamp::now());

    let text = place.done(&["show", "a"]).out;
    let starts = ["a: in use, last token ", "  held: leasehold[", "  waiting 1: leasehold[", "  waiting 2: leasehold["];
    assert_eq!(text.lines().count(), starts.len());
    assert!(text.lines().zip(starts).all(|(line, start)| line.starts_with(start)), "{text}");
}

#[test]
fn ls_lists_what_begins_with_the_prefix() {
    let place = Place::new();
    let _holders = [place.holder("jobs/a", &[]), place.holder("jobs/b", &[]), place.holder("x", &[])];
    let _waiter = place.waiter(&["run", "jobs/b", "--", "true"]);
    place.done(&["run", "jobs/free", "--", "true"]);
    let table = place.done(&["ls", "jobs/"]).out;
    let words: Vec<Vec<_>> = table.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    assert_eq!(words, [["NAME", "HOLDERS", "WAITERS"], ["jobs/a", "1", "0"], ["jobs/b", "1", "1"]]);
    let listed: Value = serde_json::from_str(&place.done(&["ls", "jobs/", "--json"]).out).unwrap();
    assert_eq!(listed[1], place.show("jobs/b"));
    assert_eq!(listed.as_array().unwrap().len(), 2);
}

#[test]
fn ls_tells_what_is_damaged_and_lists_the_others() {
    let place = Place::new();
    let holder = place.holder("b", &[]);
    std::fs::write(place.path("store/a.line"), "not ours").unwrap();
    let done = place.done(&["ls"]);
    assert_eq!((done.code(), done.out.lines().count()), (70, 2), "{}", done.out);
    assert!(done.err.contains("cannot look at \"a\"") && done.err.contains("not a line file"), "{}", done.err);
    holder.end();
}

#[test]
fn watch_tells_every_change_until_interrupted() {
    let place = Place::new();
    let mut watch = place.started(&["watch", "a", "--json"]);
    let mut lines = BufReader::new(watch.out()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let free = next();
    assert_eq!(fields(&free), ["at", "holders", "last_token", "name", "strangers", "waiters"]);
    let holder = place.holder("a", &[]);
    let held = next();
    assert_eq!((held["holders"].as_array().unwrap().len(), &held["name"]), (1, &"a".into()));
    holder.end();
    assert_eq!(next()["holders"], free["holders"]);
    watch.signal(Signal::SIGINT);
    assert_eq!(watch.ended().code(), 130);
}

#[test]
fn a_reader_that_has_seen_enough_ends_watch_quietly() {
    let place = Place::new();
    let mut watch = place.started(&["watch", "a"]);
    let mut first = String::new();
    BufReader::new(watch.out()).read_line(&mut first).unwrap();
    let _holder = place.holder("a", &[]);
    let ended = watch.ended();
    assert_eq!((ended.code(), ended.err.as_str()), (141, ""));
}

#[test]
fn break_says_who_holds_if_it_is_another() {
    let place = Place::new();
    place.done(&["break", "a", "--token", "7"]).assert(1, "", "nobody holds a with token 7");
    let holder = place.holder("a", &[]);
    let token = place.holders("a")[0]["token"].to_string();
    place.done(&["break", "a", "--token", "7"]).assert(1, "", &format!("token {token}"));
    holder.end().assert(0, "", "");
}

#[test]
fn a_store_is_named_by_flag_or_environment() {
    let place = Place::new();
    let _holder = place.holder("a", &[]);
    let elsewhere = format!("file:{}", place.path("elsewhere").display());
    place.done(&["ls", "--store", &elsewhere, "--json"]).assert(0, "[]\n", "");
    let mut ls = place.leasehold(&["ls", "--json"]);
    let state = place.path("state");
    assert_eq!(ls.env_remove("LEASEHOLD_STORE").env("XDG_STATE_HOME", &state).output().unwrap().stdout, b"[]\n");
    assert!(state.join("leasehold").is_dir());
}
