//! The same command with its locks on ZooKeeper.

use std::io::{BufRead, BufReader};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use lab_servers::ZooKeeper;
use nix::sys::signal::Signal;

use crate::place::{Place, is_alive};

/// One server for all tests, and a folder of its own for each.
static SERVER: LazyLock<ZooKeeper> = LazyLock::new(ZooKeeper::start);

fn place() -> Place {
    static FOLDERS: AtomicU32 = AtomicU32::new(0);
    let folder = FOLDERS.fetch_add(1, Ordering::Relaxed);
    Place::at(format!("{}/test-{folder}", SERVER.url()))
}

#[test]
fn runs_exclude_each_other_and_serve_in_order() {
    let place = place();
    let first = place.holder("a", &[]);
    place.done(&["run", "a", "--wait", "0", "--", "true"]).assert(75, "", "held by");
    place.done(&["run", "a", "--wait", "50ms", "--", "true"]).assert(75, "", "held by");
    let second = place.waiter(&["run", "a", "--quiet", "--", "sh", "-c", "echo 2 >> order"]);
    let third = place.waiter(&["run", "a", "--quiet", "--", "sh", "-c", "echo 3 >> order"]);
    first.end().assert(0, "", "");
    second.ended().assert(0, "", "");
    third.ended().assert(0, "", "");
    assert_eq!(place.read("order"), "2\n3\n");
    assert!(place.holders("a").is_empty());
}

#[test]
fn the_command_ends_as_it_does_and_knows_its_token_and_store() {
    let place = place();
    place.done(&["run", "a", "--", "sh", "-c", "exit 7"]).assert(7, "", "");
    place.done(&["run", "a", "--fixed", "--lease", "1h", "--", "sh", "-c", "kill -9 $$"]).assert(137, "", "");
    let said = place.done(&["run", "a", "--", "sh", "-c", "echo $LEASEHOLD_TOKEN $LEASEHOLD_STORE"]).out;
    let (token, store) = said.trim().split_once(' ').unwrap();
    assert!(token.parse::<u64>().unwrap() > 0);
    assert_eq!(store, place.url());
}

#[test]
fn readers_share_and_slots_are_counted() {
    let place = place();
    let readers = [place.holder("r", &["--shared"]), place.holder("r", &["--shared"])];
    place.done(&["run", "r", "--wait", "0", "--", "true"]).assert(75, "", "held by");
    let slots = [place.holder("s", &["--slots", "3", "--take", "2"]), place.holder("s", &["--slots", "3"])];
    place.done(&["run", "s", "--slots", "3", "--wait", "0", "--", "true"]).assert(75, "", "held by");
    place.done(&["run", "s", "--wait", "0", "--", "true"]).assert(64, "", "a semaphore of 3 slots");
    readers.into_iter().chain(slots).for_each(|holder| holder.end().assert(0, "", ""));
}

#[test]
fn lines_are_listed_shown_watched_and_broken() {
    let place = place();
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
    let never = (token.parse::<u64>().unwrap() + 1).to_string();
    assert_ne!(place.done(&["break", "jobs/ä b", "--token", &never]).code(), 0);
    let broken = place.done(&["break", "jobs/ä b", "--token", &token]);
    assert!(broken.code() == 0 && broken.out.starts_with("broke the hold of jobs/ä b with token"), "{broken:?}");
    assert_eq!(broken.out.lines().count(), 1, "nothing has to be waited for: {broken:?}");
    holder.ended().assert(76, "", "the store no longer has the claim");
}

#[test]
fn a_signal_while_waiting_leaves_the_line() {
    let place = place();
    let holder = place.holder("a", &[]);
    let waiter = place.waiter(&["run", "a", "--", "true"]);
    waiter.signal(Signal::SIGTERM);
    assert_eq!(waiter.ended().code(), 143);
    assert!(place.waiters("a").is_empty());
    holder.end().assert(0, "", "");
}

/// The session is trusted for its timeout, so the command is told, and then killed, before that is over.
#[test]
fn a_server_that_falls_silent_ends_the_command_before_the_next_can_hold() {
    let server = ZooKeeper::start();
    let mut place = Place::at(server.url());
    place.ask_for("session=4s");
    let line = "trap '' TERM; echo $$ > pid; while :; do sleep 0.01; done";
    let run = place.started(&["run", "a", "--", "sh", "-c", line]);
    let command = place.pid("pid");
    server.pause();
    let done = run.ended();
    done.assert(76, "", "losing a: its time is about to end; sending TERM to the command, and KILL in ");
    assert!(!is_alive(command));
    server.resume();
    place.done(&["run", "a", "--quiet", "--", "true"]).assert(0, "", "");
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
    let run = place.holder("a", &[]);
    let next = place.waiter(&["run", "a", "--quiet", "--", "echo", "mine"]);
    run.signal(Signal::SIGKILL);
    next.ended().assert(0, "mine\n", "");
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
