//! The same command with its locks on ZooKeeper.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use lab_servers::ZooKeeper;

use crate::place::Place;
use crate::servers::{a_killed_run_frees_the_lock, a_silent_server_ends_the_command, on_any_server};

/// One server for all tests, and a folder of its own for each.
static SERVER: LazyLock<ZooKeeper> = LazyLock::new(ZooKeeper::start);

fn place() -> Place {
    static FOLDERS: AtomicU32 = AtomicU32::new(0);
    let folder = FOLDERS.fetch_add(1, Ordering::Relaxed);
    Place::at(format!("{}/test-{folder}", SERVER.url()))
}

on_any_server!(place());

/// The session is trusted for its timeout.
#[test]
fn a_server_that_falls_silent_ends_the_command_before_the_next_can_hold() {
    let server = ZooKeeper::start();
    let mut place = Place::at(server.url());
    place.ask_for("session=4s");
    a_silent_server_ends_the_command(&place, |silent| if silent { server.pause() } else { server.resume() });
}

/// A server that is started again has kept the session, and a command that is under way does not notice.
#[test]
fn a_server_that_is_started_again_ends_nothing() {
    let mut server = ZooKeeper::start();
    let place = Place::at(server.url());
    let run = place.holder("a", &[]);
    server.restart();
    let token = place.holders("a")[0]["token"].to_string();
    run.end().assert(0, "", "");
    assert!(place.holders("a").is_empty(), "{token}");
}

#[test]
fn a_killed_run_frees_the_lock_within_its_session() {
    let mut place = place();
    place.ask_for("session=1s");
    a_killed_run_frees_the_lock(&place);
}

#[test]
fn trouble_has_its_exit_code_and_a_remedy_and_tells_no_password() {
    let place = place();
    let (port, folder) = (SERVER.port(), place.url().rsplit_once('/').unwrap().1.to_owned());
    let tell = |store: &str, code, what: &str| {
        let done = place.done(&["run", "--store", store, "a", "--wait", "0", "--", "true"]);
        done.assert(code, "", what);
        assert!(!done.err.contains("hunter2") && !done.err.contains("wrong"), "{done:?}");
    };
    let mine = format!("zookeeper://me:hunter2@127.0.0.1:{port}/{folder}?acl=creator");
    tell(&mine, 0, "");
    tell(&format!("zookeeper://me:wrong@127.0.0.1:{port}/{folder}"), 77, "the user may not do this");
    tell("zookeeper://me:hunter2@127.0.0.1:1", 69, "no server can be reached");
    tell(&format!("zookeeper://me:hunter2@127.0.0.1:{port}?x=1"), 64, "not a setting of a ZooKeeper URL");
    std::fs::write(place.path("secret"), "hunter2\n").unwrap();
    let secret = place.path("secret").display().to_string();
    let url = format!("zookeeper://me@127.0.0.1:{port}/{folder}?acl=creator&password-file={secret}");
    tell(&url, 0, "");
    let done = place.done(&["show", "--store", &mine, "a"]);
    assert!(done.code() == 0 && !done.out.contains("hunter2"), "{done:?}");
}
