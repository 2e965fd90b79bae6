//! The command with its locks on ZooKeeper.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use lab_servers::ZooKeeper;

use crate::sandbox::Sandbox;
use crate::servers::{
    killed_run_frees_the_lock, on_any_server, unresponsive_server_ends_the_command,
};

/// One server for all tests. Each test has a folder of its own.
static SERVER: LazyLock<ZooKeeper> = LazyLock::new(ZooKeeper::start);

pub(crate) fn sandbox() -> Sandbox {
    static FOLDERS: AtomicU32 = AtomicU32::new(0);
    let folder = FOLDERS.fetch_add(1, Ordering::Relaxed);
    Sandbox::at(format!("{}/test-{folder}", SERVER.url()))
}

on_any_server!(sandbox());

/// The hold stays valid for the session timeout after the last confirmed heartbeat.
#[test]
fn unresponsive_server_ends_the_command_before_the_next_grant() {
    let server = ZooKeeper::start();
    let mut sandbox = Sandbox::at(server.url());
    sandbox.set("session=4s");
    unresponsive_server_ends_the_command(&sandbox, |silent| {
        if silent {
            server.pause();
        } else {
            server.resume();
        }
    });
}

/// A restarted server has kept the session, and the restart does not affect a running command.
///
/// Shows G-25.
#[test]
fn server_restart_does_not_end_the_command() {
    let mut server = ZooKeeper::start();
    let sandbox = Sandbox::at(server.url());
    let run = sandbox.holder("a", &[]);
    server.restart();
    let token = sandbox.token("a");
    run.end().assert(0, "", "");
    assert!(sandbox.holders("a").is_empty(), "{token}");
}

#[test]
fn killed_run_frees_the_lock_within_the_session() {
    let mut sandbox = sandbox();
    sandbox.set("session=2s");
    killed_run_frees_the_lock(&sandbox);
}

#[test]
fn errors_have_exit_code_and_help_without_password() {
    let sandbox = sandbox();
    let port = SERVER.port();
    let folder = sandbox.url().rsplit_once('/').unwrap().1.to_owned();
    let check = |store: &str, code, what: &str| {
        let done = sandbox.done(&["run", "--store", store, "a", "--wait", "0", "--", "true"]);
        done.assert(code, "", what);
        assert!(
            !done.err.contains("hunter2") && !done.err.contains("wrong"),
            "{done:?}"
        );
    };
    let mine = format!("zookeeper://me:hunter2@127.0.0.1:{port}/{folder}?acl=creator");
    check(&mine, 0, "");
    check(
        &format!("zookeeper://me:wrong@127.0.0.1:{port}/{folder}"),
        77,
        "leasehold: cannot acquire \"a\"",
    );
    check("zookeeper://me:hunter2@127.0.0.1:1", 69, "127.0.0.1:1");
    check(
        &format!("zookeeper://me:hunter2@127.0.0.1:{port}?x=1"),
        64,
        "setting",
    );
    std::fs::write(sandbox.path("secret"), "hunter2\n").unwrap();
    let secret = sandbox.path("secret").display().to_string();
    let url =
        format!("zookeeper://me@127.0.0.1:{port}/{folder}?acl=creator&password-file={secret}");
    check(&url, 0, "");
    let done = sandbox.done(&["show", "--store", &mine, "a"]);
    assert!(
        done.code() == 0 && !done.out.contains("hunter2"),
        "{done:?}"
    );
}

/// With both formats in one folder, each lock is listed with its own.
///
/// Shows G-56.
#[test]
fn locks_of_both_formats_are_listed_with_all() {
    let mut sandbox = sandbox();
    let curator = sandbox.holder("first", &[]);
    sandbox.set("dialect=kazoo");
    let kazoo = sandbox.holder("second", &[]);

    let listed = sandbox.done(&["ls", "--all"]);
    listed.assert_names(&["first", "second"]);
    let formats: Vec<_> = listed.out.lines().skip(1).collect();
    assert!(formats[0].contains("curator"), "{formats:?}");
    assert!(formats[1].contains("leasehold"), "{formats:?}");
    let token = sandbox.done(&["show", "first", "--all", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&token.out).expect("an array");
    let token = shown[0]["holders"][0]["token"].as_str().expect("a text");
    let broken = sandbox.done(&["break", "first", "--all", "--token", token]);
    assert_eq!(broken.code(), 0);
    curator.end();
    kazoo.end().assert(0, "", "");
}

/// A user shows every lock whose node it may read, and learns that the record is another user's.
///
/// Shows G-29, G-58.
#[test]
fn lock_is_shown_without_a_record_of_another_user() {
    let sandbox = sandbox();
    let open_to_all = sandbox.done(&["run", "a", "--", "true"]);
    open_to_all.assert(0, "", "");
    let theirs = sandbox.url().replace("//", "//them:pw@") + "?acl=creator";
    let job = ["run", "--store", &theirs, "--once", "1", "a", "--", "true"];
    sandbox.done(&job).assert(0, "", "");

    let shown = sandbox.done(&["show", "a"]);
    assert!(
        shown.code() == 0 && shown.out.starts_with("a: free"),
        "{shown:?}"
    );
    assert!(shown.err.contains("cannot read the record of"), "{shown:?}");
    assert_eq!(shown.err.lines().count(), 1, "{shown:?}");
    let missed = sandbox.done(&["show", "--missed-after", "26h", "a"]);
    missed.assert(77, "", "cannot read the record of");
    let without_record = sandbox.done(&["show", "b"]);
    assert_eq!((without_record.code(), &*without_record.err), (0, ""));
}

/// The node of an old record stays until `gc` removes it.
///
/// Shows G-58.
#[test]
fn old_record_is_not_listed() {
    let server = ZooKeeper::setup().own_clock().start();
    let mut sandbox = Sandbox::at(server.url());
    sandbox.set("records=2d");
    let job = ["run", "--once", "1", "a", "--", "true"];
    sandbox.done(&job).assert(0, "", "");
    let listed = sandbox.done(&["ls", "--once"]);
    assert!(listed.out.starts_with("a\n"), "{listed:?}");
    server.clock().set(3 * 24 * 3_600);
    sandbox.done(&["ls", "--once"]).assert(0, "", "");
}
