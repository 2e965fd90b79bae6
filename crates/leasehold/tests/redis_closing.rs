//! A store that is closed leaves nothing open. Alone in its program, as it counts what the process has.
#![cfg(feature = "redis")]
#![allow(missing_docs)]

use std::fs;

use lab_servers::{Redis, until};

#[test]
fn hundred_closed_stores_leave_no_connection() {
    let server = Redis::start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("it runs");
    let once = || {
        runtime.block_on(async {
            let locks = leasehold::open(&server.url()).await.expect("it opens");
            let held = locks.mutex("a").acquire().await.expect("granted");
            let waiting = locks.mutex("a");
            tokio::spawn(async move { waiting.acquire().await });
            drop(held);
        });
    };
    // What is kept for the life of the process is there now.
    once();
    let left = || {
        (
            count("fd"),
            count("task"),
            runtime.metrics().num_alive_tasks(),
            clients(&server),
        )
    };
    let is_quiet = || Ok(((left().2, left().3) == (0, 0)).then_some(()));
    until("the first to be gone", is_quiet).expect("it goes");
    let before = left();
    (0..100).for_each(|_| once());
    until(
        "nothing to be left",
        || Ok((left() <= before).then_some(())),
    )
    .unwrap_or_else(|error| {
        panic!(
            "{error}: {:?} after {before:?} (descriptors, threads, tasks, clients)",
            left()
        );
    });
    assert!(
        server
            .command(&["PUBSUB", "CHANNELS", "*"])
            .list()
            .is_empty()
    );
}

fn count(what: &str) -> usize {
    fs::read_dir(format!("/proc/self/{what}"))
        .expect("it is there")
        .count()
}

/// Clients of the library, which say who they are.
fn clients(server: &Redis) -> usize {
    server
        .command(&["CLIENT", "LIST"])
        .text()
        .lines()
        .filter(|line| line.contains("sub=1"))
        .count()
}
