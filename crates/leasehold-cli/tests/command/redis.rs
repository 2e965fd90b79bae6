//! The same command with its locks on a server.

use lab_servers::Redis;

use crate::place::{Place, until};
use crate::servers::{a_killed_run_frees_the_lock, a_silent_server_ends_the_command, on_any_server};

on_any_server!(Place::on_redis());

/// The hold is trusted for the crash grace.
#[test]
fn a_server_that_falls_silent_ends_the_command_before_the_next_can_hold() {
    let mut place = Place::on_redis();
    place.ask_for("crash-grace=2s");
    let server = place.server();
    a_silent_server_ends_the_command(&place, |silent| if silent { server.pause() } else { server.resume() });
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

#[test]
fn a_killed_run_frees_the_lock_within_the_grace() {
    let mut place = Place::on_redis();
    place.ask_for("crash-grace=500ms");
    a_killed_run_frees_the_lock(&place);
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

/// A run whose wait ends while the store is away ends with 69, and with 75 while the store is there.
fn wait_ends_by_its_store(place: &Place, kill: impl FnOnce()) {
    let _holder = place.holder("a", &[]);
    let wait = ["run", "a", "--wait", "4s", "--", "true"];
    place.done(&wait).assert(75, "", "not granted within 4s: held by");

    let mut waiter = place.started(&wait);
    waiter.until_says("waiting for a: ");
    kill();
    assert_eq!(waiter.ended().code(), 69);
}

#[test]
fn wait_without_server_ends_with_69() {
    let mut server = Redis::start();
    wait_ends_by_its_store(&Place::at(server.url()), || server.kill());
}

#[test]
fn wait_without_masters_ends_with_69() {
    let mut masters: Vec<Redis> = (0..5).map(|_| Redis::start()).collect();
    let hosts: Vec<String> = masters.iter().map(Redis::address).collect();
    let place = Place::at(format!("redlock://{}?quarantine=off", hosts.join(",")));
    wait_ends_by_its_store(&place, || masters.iter_mut().for_each(Redis::kill));
}

/// Nobody waits forever for masters that are gone.
#[test]
fn wait_without_deadline_and_masters_ends_with_69() {
    let mut masters: Vec<Redis> = (0..5).map(|_| Redis::start()).collect();
    let hosts: Vec<String> = masters.iter().map(Redis::address).collect();
    let place = Place::at(format!("redlock://{}?quarantine=off", hosts.join(",")));
    let _holder = place.holder("a", &[]);
    let mut waiters: Vec<_> = (0..4).map(|_| place.started(&["run", "a", "--", "true"])).collect();
    for waiter in &mut waiters {
        waiter.until_says("waiting for a: ");
    }
    masters.iter_mut().for_each(Redis::kill);
    for waiter in waiters {
        let done = waiter.ended();
        assert!(done.code() == 69 && done.err.contains("of 5 masters vote"), "{done:?}");
    }
}
