//! Mistakes that only the store or the machine shows. Each message names the text to type.

use std::io::{Read, Write};
use std::net::TcpListener;

use lab_servers::{Redis, Sentinels};

use crate::sandbox::{Finished, Sandbox};
use crate::scripts::BIN;

/// The message is one line, and the store is not waited for.
#[track_caller]
fn refused(done: &Finished, part: &str) {
    done.assert(64, "", part);
    assert_eq!(done.err.lines().count(), 1, "{done:?}");
}

/// Answers every connection as a web server does that gets a request it cannot read.
fn web_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            // The request does not matter, and the client may be gone.
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n<html></html>");
        }
    });
    address.to_string()
}

#[test]
fn server_of_another_kind_is_refused_with_the_url_to_write() {
    let sandbox = Sandbox::new();
    let (server, group) = (Redis::start(), Sentinels::start());
    let sentinel = group.sentinel(0).address();
    let web = web_server();

    let examined = sandbox.done(&["doctor", "--store", &format!("redis://{sentinel}")]);
    assert!(examined.out.contains("this is a sentinel"), "{examined:?}");

    for (store, part) in [
        (
            format!("redis://{sentinel}"),
            "this is a sentinel, which keeps no locks; write redis+sentinel://",
        ),
        (
            format!("redis+sentinel://{}/m", server.address()),
            "this is a Redis server, not a sentinel; give the port of a sentinel",
        ),
        (format!("redis://{web}"), "the server does not speak Redis"),
        (
            format!("redis+sentinel://{web}/m"),
            "the server does not speak Redis",
        ),
        (
            format!("redis+cluster://{web}"),
            "the server does not speak Redis",
        ),
        (
            format!("redis://{web}?dialect=plain"),
            "the server does not speak Redis",
        ),
    ] {
        let run = ["run", "a", "--store", &store, "--", "echo", "ran"];
        refused(&sandbox.done(&run), part);
    }
}

#[test]
fn refused_acquire_says_what_to_type_next() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("b c", &[]);
    let done = sandbox.done(&["run", "-n", "b c", "--", "echo", "ran"]);
    done.assert(75, "", "; see `leasehold show 'b c'`");
}

#[test]
fn name_that_is_too_long_is_not_printed_back_in_full() {
    let sandbox = Sandbox::new();
    let name = "ä".repeat(300);
    for subcommand in [&["run", &name, "--", "true"][..], &["show", &name]] {
        let done = sandbox.done(subcommand);
        refused(&done, "has at most 512 bytes, and this one has 600");
        assert!(done.err.contains(&format!(" \"{}…\" on ", "ä".repeat(32))));
    }
}

#[test]
fn home_that_does_not_exist_is_not_made() {
    let sandbox = Sandbox::new();
    let home = sandbox.path("nobody");
    let mut run = sandbox.leasehold(&["run", "a", "--", "echo", "ran"]);
    run.env_remove("LEASEHOLD_STORE")
        .env_remove("XDG_STATE_HOME");
    let done: Finished = run.env("HOME", &home).output().unwrap().into();
    refused(
        &done,
        "which HOME names, does not exist; name a folder: file:",
    );
    assert!(!home.exists());
}

#[test]
fn missing_proc_is_named() {
    let sandbox = Sandbox::new();
    for (subcommand, file) in [
        ("run a -- echo ran", "/proc/self/status"),
        ("hold a", "/proc/self/status"),
        ("acquire a --detach", "/proc/self/exe"),
        ("show a", "/proc/sys/kernel/random/boot_id"),
    ] {
        let text = format!("mount -t tmpfs none /proc; echo x | {BIN} {subcommand}");
        let mut container = sandbox.script("unshare --mount sh", &text);
        let done: Finished = container.output().unwrap().into();
        assert_ne!(done.code(), 0, "{done:?}");
        assert!(done.err.contains(file) && done.out.is_empty(), "{done:?}");
    }
}
