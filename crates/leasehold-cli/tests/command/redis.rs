//! The command with its locks on Redis and Redlock.

use std::io::{BufRead, BufReader};

use lab_servers::Redis;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::descendants::command_has_ended_before_the_next_grant;
use crate::sandbox::{Sandbox, Started, is_alive, until};
use crate::servers::{
    killed_run_frees_the_lock, on_any_server, unresponsive_server_ends_the_command,
};

on_any_server!(Sandbox::on_redis());

/// The hold stays valid for the crash grace after the last reply.
#[test]
fn unresponsive_server_ends_the_command_before_the_next_grant() {
    let mut sandbox = Sandbox::on_redis();
    sandbox.set("crash-grace=2s");
    let server = sandbox.server();
    unresponsive_server_ends_the_command(&sandbox, |silent| {
        if silent {
            server.pause();
        } else {
            server.resume();
        }
    });
}

/// Of such a hold, only the value of the key is known.
#[test]
fn hold_of_another_library_is_reported_without_process_and_time() {
    let mut sandbox = Sandbox::on_redis();
    sandbox.set("dialect=plain");
    sandbox.server().command(&["SET", "a", "abcdef123456"]);

    let refused = sandbox.done(&["run", "-n", "a", "--", "true"]);
    refused.assert(75, "", "held by another library (value abcdef12…); see ");
}

/// A connection that is re-established within the grace keeps the lock, and the command runs on.
///
/// Shows G-25.
#[test]
fn short_disconnects_do_not_end_the_command() {
    let sandbox = Sandbox::on_redis();
    let run = sandbox.holder("a", &[]);
    for _ in 0..3 {
        sandbox
            .server()
            .command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        sandbox
            .server()
            .command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        until("both connections are re-established", || {
            sandbox.subscribers() == 2
        });
    }
    run.end().assert(0, "", "");
}

#[test]
fn killed_run_frees_the_lock_within_the_grace() {
    let mut sandbox = Sandbox::on_redis();
    sandbox.set("crash-grace=2s");
    killed_run_frees_the_lock(&sandbox);
}

#[test]
fn errors_have_exit_code_and_help_without_password() {
    let sandbox = Sandbox::new();
    let server = Redis::setup().password("hunter2").start();
    let port = server.port();
    let check = |store: &str, code, what: &str| {
        let done = sandbox.done(&["run", "--store", store, "a", "--wait", "0", "--", "true"]);
        done.assert(code, "", what);
        assert!(
            !done.err.contains("hunter2") && !done.err.contains("wrong"),
            "{done:?}"
        );
    };
    check(&format!("redis://127.0.0.1:{port}"), 77, "password");
    check(&format!("redis://:wrong@127.0.0.1:{port}"), 77, "password");
    check("redis://:hunter2@127.0.0.1:1", 69, "127.0.0.1:1");
    check(
        &format!("redis://:hunter2@127.0.0.1:{port}?x=1"),
        64,
        "setting",
    );
    std::fs::write(sandbox.path("secret"), "hunter2\n").unwrap();
    let url = format!(
        "redis://127.0.0.1:{port}?password-file={}",
        sandbox.path("secret").display()
    );
    sandbox
        .done(&["run", "--store", &url, "a", "--", "true"])
        .assert(0, "", "");
    let done = sandbox.done(&[
        "show",
        "--store",
        &format!("redis://:hunter2@127.0.0.1:{port}"),
        "a",
    ]);
    assert!(
        done.code() == 0 && !done.out.contains("hunter2"),
        "{done:?}"
    );
}

/// A run inside a run finds the store of the outer one, wherever COMMAND has gone.
#[test]
fn relative_path_of_a_url_counts_from_the_folder_of_the_outer_run() {
    let sandbox = Sandbox::new();
    let server = Redis::setup().password("hunter2").start();
    let folder = sandbox.path("my @&%files");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("secret"), "hunter2\n").unwrap();

    let url = format!("{}?password-file=secret&crash-grace=2s", server.url());
    let leasehold = env!("CARGO_BIN_EXE_leasehold");
    let inner = format!("cd / && exec {leasehold} run --reentrant a -- echo inner");
    let mut run = sandbox.leasehold(&["run", "--store", &url, "a", "--", "sh", "-c", &inner]);
    let done = Started::of(run.current_dir(folder)).end();
    done.assert(0, "inner\n", "");
}

/// `show` prints the holder, and the state that each of several servers reports.
#[test]
fn show_lists_the_state_of_each_master() {
    let mut servers: Vec<Redis> = (0..3).map(|_| Redis::start()).collect();
    let hosts: Vec<String> = servers.iter().map(Redis::address).collect();
    let store = format!("redlock://{}?quarantine=off", hosts.join(","));
    let sandbox = Sandbox::new();
    assert!(
        sandbox
            .done(&["show", "a", "--store", &store])
            .out
            .starts_with("a: free\n  redis://")
    );
    let mut run = sandbox
        .leasehold(&["run", "a", "--store", &store, "--", "sleep", "60"])
        .spawn()
        .unwrap();
    let shown = || -> Value {
        let shown = sandbox.done(&["show", "a", "--store", &store, "--json"]);
        serde_json::from_str(&shown.out).unwrap()
    };
    until("all masters have granted the lock", || {
        let shown = shown();
        let states = shown["servers"].as_array().unwrap();
        states.iter().all(|server| server["state"] == "held") && shown["holders"] != json!([])
    });
    check_servers(&shown(), &hosts);

    servers[1].kill();
    until("the dead master is reported", || {
        shown()["servers"][1]["state"] == "unknown"
    });
    let dead = &shown()["servers"][1];
    assert_eq!(dead["token"], Value::Null);
    assert!(dead["error"].is_string(), "{dead}");

    let output = sandbox.done(&["show", "a", "--store", &store]).out;
    let dead = output.lines().find(|line| line.contains(&hosts[1]));
    let alive = output.lines().find(|line| line.contains(&hosts[2]));
    assert!(
        alive.unwrap().contains("held, token 1") && !dead.unwrap().contains("held"),
        "{output}"
    );
    sandbox
        .done(&["run", "a", "--store", &store, "--wait", "0", "--", "true"])
        .assert(75, "", "held by");
    sandbox
        .done(&["run", "a", "--store", &store, "--shared", "--", "true"])
        .assert(64, "", "mutex");
    run.kill().unwrap();
    run.wait().unwrap();
}

/// The JSON of each server has exactly the documented fields.
fn check_servers(shown: &Value, hosts: &[String]) {
    let servers = shown["servers"].as_array().unwrap();
    let token = &shown["holders"][0]["token"];
    assert!(token.as_str().unwrap().parse::<u64>().unwrap() > 0);
    assert_eq!(servers.len(), hosts.len());

    for (server, host) in servers.iter().zip(hosts) {
        let remaining = server["remaining_ms"].as_u64().unwrap();
        assert!(remaining > 0, "{server}");
        assert_eq!(
            *server,
            json!({
                "server": format!("redis://{host}"),
                "state": "held",
                "token": token,
                "last_token": token,
                "remaining_ms": remaining,
                "error": null,
            })
        );
    }
}

/// Shows G-36.
#[test]
fn stopped_run_has_ended_its_command_before_the_next_grant() {
    let mut sandbox = Sandbox::on_redis();
    sandbox.set("crash-grace=2s");
    let done = command_has_ended_before_the_next_grant(&sandbox, Signal::SIGSTOP);
    assert_eq!(done.code(), 76);
}

/// Shows G-36.
#[test]
fn killed_run_has_ended_its_command_before_the_next_grant() {
    let mut sandbox = Sandbox::on_redis();
    sandbox.set("crash-grace=2s");
    let done = command_has_ended_before_the_next_grant(&sandbox, Signal::SIGKILL);
    done.assert_signal(Signal::SIGKILL, "");
}

/// The store grants the lock to the next waiter, so no process of the command may go on.
#[test]
fn killed_run_kills_the_whole_group_of_its_command() {
    let sandbox = Sandbox::on_redis();
    let line = "sleep 1000 & echo $! > pid; wait";
    let run = sandbox.started(&["run", "a", "--", "sh", "-c", line]);
    let descendant = sandbox.pid("pid");
    run.signal(Signal::SIGKILL);
    until("the descendant has ended", || !is_alive(descendant));
}

/// The locks of a Java program are listed, shown and broken, beside those of leasehold. A break
/// needs the token of the holder that was shown.
///
/// Shows G-52.
#[test]
fn locks_of_redisson_are_listed_shown_and_broken() {
    let sandbox = Sandbox::on_redis();
    let first = "285475da-9152-4c83-822a-67ee2f116a79:52";
    let second = "285475da-9152-4c83-822a-67ee2f116a79:53";
    let hold = |thread: &str| sandbox.server().command(&["HSET", "java", thread, "2"]);
    hold(first);
    let ours = sandbox.holder("ours", &[]);

    sandbox.done(&["ls"]).assert_names(&["ours"]);
    sandbox
        .done(&["ls", "--dialect", "redisson"])
        .assert_names(&["java"]);
    let show = ["show", "java", "--dialect", "redisson", "--json"];
    let shown: Value = serde_json::from_str(&sandbox.done(&show).out).expect("one object");
    let holder = &shown["holders"][0];
    assert_eq!(holder["program"], "Redisson");
    assert_eq!(holder["label"], format!("{first} ×2"));

    let token = holder["token"].as_str().expect("a text").to_owned();
    let break_hold = ["break", "java", "--dialect", "redisson", "--token", &token];
    sandbox.server().command(&["DEL", "java"]);
    hold(second);
    assert_eq!(sandbox.done(&break_hold).code(), 1);
    sandbox.server().command(&["DEL", "java"]);
    hold(first);
    assert_eq!(sandbox.done(&break_hold).code(), 0);
    assert!(
        sandbox
            .server()
            .command(&["HGETALL", "java"])
            .list()
            .is_empty()
    );

    sandbox.done(&["ls", "--dialect", "kazoo"]).assert(
        64,
        "",
        "does not have locks of this library",
    );
    ours.end().assert(0, "", "");
}

/// The locks of all libraries on one server are listed together, with their formats. A break needs
/// the token of the hold that was shown.
///
/// Shows G-56.
#[test]
fn locks_of_all_libraries_are_listed_shown_and_broken() {
    let sandbox = Sandbox::on_redis();
    let thread = "285475da-9152-4c83-822a-67ee2f116a79:52";
    let server = sandbox.server();
    server.command(&["HSET", "lock", thread, "2"]);
    server.command(&["PEXPIRE", "lock", "30000"]);
    server.command(&["HSET", "rw", "mode", "read", thread, "1"]);
    let reader = format!("{{rw}}:{thread}:rwlock_timeout:1");
    server.command(&["SET", &reader, "1", "PX", "30000"]);
    server.command(&["SET", "permits", "2"]);
    server.command(&[
        "ZADD",
        "{permits}:timeout",
        "922337203685477",
        "0123456789abcdef",
    ]);
    let python = "9a8e4c7a6f1211efb2c50242ac120002";
    server.command(&["SET", "python", python, "PX", "30000"]);
    server.command(&["SET", "endless", python]);
    server.command(&["SET", "cached", "some text", "PX", "30000"]);
    let ours = sandbox.holder("ours", &[]);

    let listed = sandbox.done(&["ls", "--all"]);
    listed.assert_names(&["endless", "lock", "ours", "permits", "python", "rw"]);
    for (name, format, holder) in [
        ("endless", "plain", "redis-py"),
        ("lock", "redisson", "Redisson"),
        ("ours", "leasehold", "ours"),
        ("permits", "redisson-semaphore", "permit 30313233"),
        ("python", "plain", "redis-py"),
        ("rw", "redisson-rw", "Redisson"),
    ] {
        let line = listed
            .out
            .lines()
            .find(|line| line.starts_with(name))
            .expect("it is listed");
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[1], format, "{line}");
        assert!(name == "ours" || line.contains(holder), "{line}");
    }

    let done = sandbox.done(&["show", "python", "--all", "--json"]);
    let shown: Value = serde_json::from_str(&done.out).expect("an array");
    assert_eq!(shown[0]["format"], "plain");
    let left = shown[0]["holders"][0]["lease_left_ms"].as_u64();
    assert!(left.is_some_and(|left| left <= 30_000), "{left:?}");
    let token = shown[0]["holders"][0]["token"].as_str().expect("a text");
    let break_hold = ["break", "python", "--all", "--token", token];
    server.command(&["SET", "python", "9a8e4c7a6f1211efb2c50242ac120003"]);
    assert_eq!(sandbox.done(&break_hold).code(), 1);
    server.command(&["SET", "python", python, "PX", "30000"]);
    assert_eq!(sandbox.done(&break_hold).code(), 0);
    assert_eq!(server.command(&["EXISTS", "python"]).int(), 0);

    let free = sandbox.done(&["show", "python", "--all", "--exit-code"]);
    assert_eq!(free.code(), 0, "{free:?}");
    assert!(free.out.starts_with("python: free\n"), "{free:?}");
    ours.end().assert(0, "", "");
}

/// A watch of all formats prints each change with its format.
///
/// Shows G-56.
#[test]
fn watch_of_all_libraries_prints_the_format() {
    let sandbox = Sandbox::on_redis();
    let mut watch = sandbox.started(&["watch", "a", "--all", "--json"]);
    let mut lines = BufReader::new(watch.out()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let value = "9a8e4c7a6f1211efb2c50242ac120002";
    sandbox
        .server()
        .command(&["SET", "a", value, "PX", "30000"]);
    let change = next();
    assert_eq!(change["format"], "plain");
    assert_eq!(change["holders"][0]["program"], "redis-py");

    let thread = "285475da-9152-4c83-822a-67ee2f116a79:52";
    sandbox.server().command(&["DEL", "a"]);
    let change = next();
    assert_eq!(change["state"], "free");
    sandbox.server().command(&["HSET", "a", thread, "2"]);
    let change = next();
    assert_eq!(change["format"], "redisson");
    watch.signal(Signal::SIGINT);
}

/// Shows G-56.
#[test]
fn all_formats_need_a_server_with_formats() {
    let sandbox = Sandbox::new();
    let refused = sandbox.done(&["ls", "--all"]);
    refused.assert(64, "", "the store has no locks of other libraries");
}

/// The commands that know their lock send its claim with the checks of the server. So one that is
/// refused has had the claim, which has left.
#[test]
fn server_that_is_refused_has_had_the_claim() {
    let sandbox = Sandbox::on_redis();
    let server = sandbox.server();
    server.command(&["CONFIG", "SET", "maxmemory", "100mb"]);
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    for (name, arguments) in [
        ("a", &["run", "a", "--", "true"][..]),
        ("b", &["acquire", "b", "--detach"][..]),
        ("c", &["acquire", "c", "--detach", "--wait", "0"][..]),
    ] {
        let refused = sandbox.done(arguments);
        assert!(
            refused.err.contains("the server evicts keys"),
            "{refused:?}"
        );
        let record = server.command(&["GET", &format!("leasehold:{{{name}}}")]);
        assert_eq!(record.bytes().get(16), Some(&b'~'), "free: {record:?}");
    }

    // What the store may refuse is refused before the claim is sent.
    for more in [&["--once"][..], &["--kill-after", "1s"], &["other"]] {
        let arguments = [&["run", "d"], more, &["--", "true"]].concat();
        assert_ne!(sandbox.done(&arguments).code(), 0);
        assert!(
            server.command(&["GET", "leasehold:{d}"]).is_nil(),
            "{more:?}"
        );
    }
}

/// Both the crash grace and `--max-hold` end the hold.
///
/// Shows G-24.
#[test]
fn time_to_stop_fits_into_the_shortest_limit() {
    let mut sandbox = Sandbox::on_redis();
    sandbox.set("crash-grace=4s");
    let options = ["run", "--max-hold", "1h", "--kill-after", "3s"];
    let done = sandbox.done(&[&options[..], &["a", "--", "true"]].concat());
    let longest = "half of the shortest limit of the hold: 4s";
    assert!(done.code() == 64 && done.err.contains(longest), "{done:?}");
}
