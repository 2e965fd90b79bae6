//! Tests of the Redis servers of the lab.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use lab_servers::{Redis, request, until};

#[test]
fn pinned_redis_runs_on_one_cpu() {
    let redis = Redis::setup().pinned(0).start();
    let status =
        fs::read_to_string(format!("/proc/{}/status", redis.pid())).expect("the server is running");
    assert!(status.contains("Cpus_allowed_list:\t0\n"), "{status}");
}

#[test]
fn pipelined_requests_get_replies_in_order() {
    let redis = Redis::start();
    let big = "x".repeat(100_000);
    let requests = [
        request(&["ECHO", &big]),
        request(&["LPUSH", "list", "b", "a"]),
        request(&["LRANGE", "list", "0", "-1"]),
    ];

    for mut raw in [redis.connection(), redis.connection()] {
        redis.command(&["DEL", "list"]);
        raw.send(&requests.concat()).expect("the server is running");
        assert_eq!(
            raw.receive_reply().expect("the server is running").text(),
            big
        );
        assert_eq!(
            raw.receive_bytes().expect("the server is running"),
            b":2\r\n"
        );
        assert_eq!(
            raw.receive_reply().expect("the server is running").texts(),
            ["a", "b"]
        );
    }
}

#[test]
fn dropped_redis_is_killed_and_its_folder_removed() {
    let redis = Redis::start();
    let pid = redis.pid();
    let folder = redis.folder().to_owned();
    drop(redis);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    assert!(!folder.exists());
}

#[test]
#[should_panic(expected = "Bad directive or wrong number of arguments")]
fn invalid_configuration_panics_with_the_log() {
    let _ = Redis::configured(&[("no-such-thing", "yes")]);
}

/// This test runs itself as the process that is killed.
#[test]
fn redis_dies_with_its_parent() {
    const STARTER: &str = "LAB_SERVERS_STARTER";
    if env::var_os(STARTER).is_some() {
        let redis = Redis::start();
        println!("\nstarted {} {}", redis.pid(), redis.folder().display());
        loop {
            thread::park();
        }
    }

    let mut starter = Command::new(env::current_exe().expect("a test is a program"));
    starter
        .args(["--exact", "redis_dies_with_its_parent", "--nocapture"])
        .env(STARTER, "1");

    let mut starter = starter
        .stdout(Stdio::piped())
        .spawn()
        .expect("a test can be started");
    let output = BufReader::new(
        starter
            .stdout
            .take()
            .expect("the stdout of the starter is a pipe"),
    )
    .lines();
    let line = output
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("started ").map(str::to_owned))
        .expect("the starter prints its server");
    let (pid, folder) = line
        .split_once(' ')
        .expect("the line has the process id and the folder");
    let stat = format!("/proc/{pid}/stat");
    assert!(Path::new(&stat).exists());

    starter.kill().expect("the starter is running");
    starter
        .wait()
        .expect("only this test waits for the starter");

    // The process that inherits the server may leave it as a zombie.
    let dead = || {
        Ok(fs::read_to_string(&stat)
            .map_or(true, |stat| stat.contains(") Z "))
            .then_some(()))
    };
    until("the server to die", dead).expect("the kernel kills it");
    fs::remove_dir_all(folder).expect("a killed server leaves its folder");
}
