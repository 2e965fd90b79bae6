//! The same command with its locks on a server.

use std::io::{BufRead, BufReader};

use lab_servers::Redis;
use nix::sys::signal::Signal;

use crate::place::{Place, is_alive, until};

#[test]
fn runs_exclude_each_other_and_serve_in_order() {
    let place = Place::on_redis();
    let first = place.holder("a", &[]);
    place.done(&["run", "a", "--wait", "0", "--", "true"]).assert(75, "", "held by");
    place.done(&["run", "a", "--wait", "50ms", "--", "true"]).assert(75, "", "held by");
    let second = place.waiter(&["run", "a", "--quiet", "--", "sh", "-c", "echo 2 >> order"]);
    let third = place.waiter(&["run", "a", "--quiet", "--", "sh", "-c", "echo 3 >> order"]);
    first.end().assert(0, "", "");
    second.ended().assert(0, "", "");
    third.ended().assert(0, "", "");
    assert_eq!(place.read("order"), "2\n3\n");
    assert!(place.is_free("a"));
}

#[test]
fn the_command_ends_as_it_does_and_knows_its_token_and_store() {
    let place = Place::on_redis();
    place.done(&["run", "a", "--", "sh", "-c", "exit 7"]).assert(7, "", "");
    place.done(&["run", "a", "--", "sh", "-c", "kill -9 $$"]).assert(137, "", "");
    let said = place.done(&["run", "a", "--", "sh", "-c", "echo $LEASEHOLD_TOKEN $LEASEHOLD_STORE"]).out;
    let (token, store) = said.trim().split_once(' ').unwrap();
    assert_eq!((token, store), (&*place.show("a")["last_token"].to_string(), &*place.url()));
}

#[test]
fn readers_share_and_slots_are_counted() {
    let place = Place::on_redis();
    let readers = [place.holder("r", &["--shared"]), place.holder("r", &["--shared"])];
    place.done(&["run", "r", "--wait", "0", "--", "true"]).assert(75, "", "held by");
    let slots = [place.holder("s", &["--slots", "3", "--take", "2"]), place.holder("s", &["--slots", "3"])];
    place.done(&["run", "s", "--slots", "3", "--wait", "0", "--", "true"]).assert(75, "", "held by");
    place.done(&["run", "s", "--wait", "0", "--", "true"]).assert(64, "", "a semaphore of 3 slots");
    readers.into_iter().chain(slots).for_each(|holder| holder.end().assert(0, "", ""));
}

#[test]
fn lines_are_listed_shown_watched_and_broken() {
    let place = Place::on_redis();
    let holder = place.holder("jobs/ä b", &["--label", "first"]);
    let _waiter = place.waiter(&["run", "jobs/ä b", "--shared", "--", "true"]);
    let _other = place.holder("x", &[]);
    let listed: serde_json::Value = serde_json::from_str(&place.done(&["ls", "--json", "jobs/"]).out).unwrap();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["name"]), (1, &"jobs/ä b".into()));
    assert_eq!((&listed[0]["holders"][0]["label"], &listed[0]["waiters"][0]["place"]), (&"first".into(), &1.into()));

    let mut watch = place.started(&["watch", "x", "--json"]);
    let mut seen = BufReader::new(watch.out()).lines().map(Result::unwrap);
    assert!(seen.next().unwrap().contains("\"holders\":[{"));
    watch.signal(Signal::SIGINT);
    assert_eq!(watch.ended().code(), 130);

    let token = place.holders("jobs/ä b")[0]["token"].to_string();
    let broken = place.done(&["break", "jobs/ä b", "--token", &token]);
    assert!(broken.code() == 0 && broken.out.starts_with("broke the hold of jobs/ä b with token"), "{broken:?}");
    assert_eq!(broken.out.lines().count(), 1, "nothing has to be waited for: {broken:?}");
    holder.ended().assert(76, "", "the store no longer has the claim");
}

#[test]
fn a_run_inside_a_run_is_found_out() {
    let place = Place::on_redis();
    let nested = ["run", "a", "--", env!("CARGO_BIN_EXE_leasehold"), "run", "a", "--", "true"];
    place.done(&nested).assert(64, "", "would wait for itself");
    let nested = ["run", "a", "--", env!("CARGO_BIN_EXE_leasehold"), "run", "--reentrant", "a", "--", "echo", "in"];
    place.done(&nested).assert(0, "in\n", "");
}

#[test]
fn a_signal_while_waiting_leaves_the_line() {
    let place = Place::on_redis();
    let holder = place.holder("a", &[]);
    let waiter = place.waiter(&["run", "a", "--", "true"]);
    waiter.signal(Signal::SIGTERM);
    assert_eq!(waiter.ended().code(), 143);
    assert!(place.waiters("a").is_empty());
    holder.end().assert(0, "", "");
}

/// The hold is trusted for the crash grace, so the command is told, and then killed, before that is over.
#[test]
fn a_server_that_falls_silent_ends_the_command_before_the_next_can_hold() {
    let mut place = Place::on_redis();
    place.ask_for("crash-grace=2s");
    let line = "trap '' TERM; echo $$ > pid; while :; do sleep 0.01; done";
    let run = place.started(&["run", "a", "--", "sh", "-c", line]);
    let command = place.pid("pid");
    place.server().pause();
    let done = run.ended();
    done.assert(76, "", "losing a: its time is about to end; sending TERM to the command, and KILL in ");
    assert!(done.err.contains("the command has not ended; sending KILL"), "{done:?}");
    assert!(!is_alive(command));
    place.server().resume();
    place.done(&["run", "a", "--quiet", "--", "true"]).assert(0, "", "");
}

/// A connection that breaks and comes back within the grace costs no lock, and no command.
#[test]
fn a_server_that_hiccups_ends_nothing() {
    let place = Place::on_redis();
    let run = place.holder("a", &[]);
    for _ in 0..3 {
        place.server().command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        place.server().command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        until("it is back", || place.subscribers() == 2);
    }
    run.end().assert(0, "", "");
}

/// With nobody to hand over to, killed with its command.
#[test]
fn a_killed_run_frees_the_lock_within_the_grace() {
    let mut place = Place::on_redis();
    place.ask_for("crash-grace=500ms");
    let run = place.holder("a", &[]);
    let next = place.waiter(&["run", "a", "--quiet", "--", "echo", "mine"]);
    run.signal(Signal::SIGKILL);
    next.ended().assert(0, "mine\n", "");
}

#[test]
fn trouble_has_its_exit_code_and_a_remedy_and_tells_no_password() {
    let place = Place::new();
    let server = Redis::setup().password("hunter2").start();
    let port = server.port();
    let tell = |store: &str, code, what: &str| {
        let done = place.done(&["run", "--store", store, "a", "--", "true"]);
        done.assert(code, "", what);
        assert!(!done.err.contains("hunter2") && !done.err.contains("wrong"), "{done:?}");
    };
    tell(&format!("redis://127.0.0.1:{port}"), 77, "the server asks for a password");
    tell(&format!("redis://:wrong@127.0.0.1:{port}"), 77, "does not accept user and password");
    tell("redis://:hunter2@127.0.0.1:1", 69, "check host and port, and that it runs");
    tell(&format!("redis://:hunter2@127.0.0.1:{port}?x=1"), 64, "not a setting of a Redis URL");
    std::fs::write(place.path("secret"), "hunter2\n").unwrap();
    let url = format!("redis://127.0.0.1:{port}?password-file={}", place.path("secret").display());
    place.done(&["run", "--store", &url, "a", "--", "true"]).assert(0, "", "");
    let done = place.done(&["show", "--store", &format!("redis://:hunter2@127.0.0.1:{port}"), "a"]);
    assert!(done.code() == 0 && !done.out.contains("hunter2"), "{done:?}");
}

/// Who holds a lock that several servers keep, and what each of them says.
#[test]
fn show_tells_what_each_master_knows() {
    let mut servers: Vec<Redis> = (0..3).map(|_| Redis::start()).collect();
    let hosts: Vec<String> = servers.iter().map(Redis::address).collect();
    let store = format!("redlock://{}?quarantine=off", hosts.join(","));
    let place = Place::new();
    assert!(place.done(&["show", "a", "--store", &store]).out.starts_with("a: free, last token none yet\n  redis://"));
    let mut run = place.leasehold(&["run", "a", "--store", &store, "--", "sleep", "60"]);
    let mut run = run.spawn().unwrap();
    let shown = || place.done(&["show", "a", "--store", &store, "--json"]).out;
    until("it is held by all", || shown().matches("\"token\": 1").count() == 4);
    servers[1].kill();
    let said = place.done(&["show", "a", "--store", &store]).out;
    let (dead, alive) =
        (said.lines().find(|line| line.contains(&hosts[1])), said.lines().find(|line| line.contains(&hosts[2])));
    assert!(alive.unwrap().contains("held, token 1") && !dead.unwrap().contains("held"), "{said}");
    place.done(&["run", "a", "--store", &store, "--wait", "0", "--", "true"]).assert(75, "", "held by");
    place.done(&["run", "a", "--store", &store, "--shared", "--", "true"]).assert(64, "", "use a mutex");
    run.kill().unwrap();
    run.wait().unwrap();
}
