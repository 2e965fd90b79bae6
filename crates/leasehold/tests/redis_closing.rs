//! A closed store keeps no file descriptor, thread, task or connection open. This test is alone in
//! its program, because it counts the resources of the whole process.
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
        .expect("the runtime starts");
    let once = || {
        runtime.block_on(async {
            let locks = leasehold::open(&server.url())
                .await
                .expect("the store opens");
            let held = locks.mutex("a").acquire().await.expect("granted");
            let waiting = locks.mutex("a");
            tokio::spawn(async move { waiting.acquire().await });
            drop(held);
        });
    };
    // The first round creates the resources that live as long as the process.
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
    until("the first store's resources to be released", is_quiet).expect("the first store closes");
    let before = left();
    (0..100).for_each(|_| once());
    until("all stores' resources to be released", || {
        Ok((left() <= before).then_some(()))
    })
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
        .expect("the process reads its own directory in /proc")
        .count()
}

/// Counts the library's clients, which are the clients with a subscription.
fn clients(server: &Redis) -> usize {
    server
        .command(&["CLIENT", "LIST"])
        .text()
        .lines()
        .filter(|line| line.contains("sub=1"))
        .count()
}
