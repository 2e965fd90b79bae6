//! What the commands report of claims on Redis whose clients have crashed.

use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use lab_servers::Redis;
use nix::sys::signal::Signal;

use crate::sandbox::{Sandbox, until};

#[test]
fn claim_without_connection_is_marked() {
    let sandbox = Sandbox::on_redis();
    let holder = sandbox.holder("a", &[]);
    let waiter = sandbox.waiter(&["run", "a", "--", "true"]);
    assert_eq!(sandbox.holders("a")[0]["connected"], true);
    assert_eq!(sandbox.waiters("a")[0]["connected"], true);

    for (claims, run) in [("holders", holder), ("waiters", waiter)] {
        run.signal(Signal::SIGKILL);
        until("its connection is missing", || {
            sandbox.show("a")[claims][0]["connected"] == false
        });
    }
    let shown = sandbox.done(&["show", "a"]).out;
    assert_eq!(
        shown.matches(", connection missing, ").count(),
        2,
        "{shown}"
    );
    sandbox.done(&["run", "-n", "a", "--", "true"]).assert(
        75,
        "",
        ", connection missing; see `leasehold show a`",
    );
}

/// They report what an acquire would get, which passes over the crashed waiter.
#[test]
fn lock_with_a_crashed_waiter_alone_is_free() {
    let sandbox = Sandbox::on_redis();
    let holder = sandbox.holder("a", &[]);
    let waiter = sandbox.waiter(&["run", "a", "--", "true"]);
    let wait = sandbox.started(&["wait", "a", "-w", "20"]);
    waiter.signal(Signal::SIGKILL);
    until("the waiter's connection is missing", || {
        sandbox.waiters("a")[0]["connected"] == false
    });
    assert_eq!(sandbox.done(&["show", "--exit-code", "a"]).code(), 1);
    holder.end().assert(0, "", "");

    wait.wait().assert(0, "", "");
    sandbox.done(&["wait", "-n", "a"]).assert(0, "", "");
    let shown = sandbox.done(&["show", "--exit-code", "a"]);
    assert_eq!(shown.code(), 0);
    assert!(shown.out.starts_with("a: free"), "{shown:?}");
    sandbox.done(&["ls"]).assert_names(&[]);
    sandbox
        .done(&["run", "-n", "a", "--", "true"])
        .assert(0, "", "");
}

/// A job that does not wait leaves what it has observed to the next one. The server's clock does not
/// count.
///
/// Shows G-01, G-20.
#[test]
fn lock_of_crashed_holder_is_granted_to_a_repeated_try_after_the_grace() {
    for ahead in [0, 3_600] {
        let mut sandbox = Sandbox::on(Redis::setup().own_clock().start());
        sandbox.set("crash-grace=2s");
        sandbox.server().set_clock(ahead);
        let holder = sandbox.holder("a", &["--lease", "1h"]);
        holder.signal(Signal::SIGKILL);
        let crashed = Instant::now();
        until("the connection is missing", || {
            sandbox.holders("a")[0]["connected"] == false
        });

        let try_once = || sandbox.done(&["run", "-n", "a", "--", "true"]).code();
        assert_eq!(try_once(), 75);
        let shown = sandbox.done(&["show", "a"]).out;
        assert!(
            shown.contains(", connection missing, first seen here "),
            "{shown}"
        );
        let file = sandbox.path("leasehold-sightings.json");
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        until("a try is granted", || try_once() == 0);
        // The holder may have trusted its hold for this long.
        let waited = crashed.elapsed().as_millis();
        assert!(waited >= 2_000, "granted after {waited} ms");
    }
}

/// What may be of another boot, damaged, or written by another user is no sighting.
#[test]
fn sighting_that_is_not_trustworthy_does_not_count() {
    let mut sandbox = Sandbox::on_redis();
    sandbox.set("crash-grace=30m");
    let holder = sandbox.holder("a", &["--lease", "2h"]);
    holder.signal(Signal::SIGKILL);
    until("the connection is missing", || {
        sandbox.holders("a")[0]["connected"] == false
    });
    let try_once = || sandbox.done(&["run", "-n", "a", "--", "true"]).code();
    assert_eq!(try_once(), 75);

    let file = sandbox.path("leasehold-sightings.json");
    let first = std::fs::read_to_string(&file).unwrap();
    let mut old: serde_json::Value = serde_json::from_str(&first).unwrap();
    old["sightings"][0]["grace_ms"] = 0.into();
    let mut of_other_boot = old.clone();
    of_other_boot["boot"] = "another".into();
    // Linux has time namespaces since version 5.6.
    if std::path::Path::new("/proc/self/timens_offsets").exists() {
        let boot = old["boot"].as_str().unwrap();
        assert!(
            boot.contains("boottime "),
            "it has the offset of the clock: {boot}"
        );
    }
    let mut of_other_store = old.clone();
    of_other_store["sightings"][0]["store"] = "redis://elsewhere:6379".into();
    let text = old.to_string();
    for (text, mode) in [
        (of_other_boot.to_string(), 0o600),
        (of_other_store.to_string(), 0o600),
        (text[..text.len() - 1].to_owned(), 0o600),
        (text.clone(), 0o620),
    ] {
        std::fs::write(&file, &text).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        assert_eq!(try_once(), 75, "{text}");
    }
    std::fs::write(&file, &text).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(try_once(), 0, "only this one counts");
}
