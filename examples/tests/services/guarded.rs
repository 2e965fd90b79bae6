//! The program `guarded`: retry and timeout around an acquire, and requests under locks.

use lab_servers::{Redis, Wire};

use crate::program::{Program, post, until, until_lock};

fn start(store: &str, seconds: &str) -> Program {
    let settings = [
        ("LEASEHOLD_STORE", store),
        ("START_SECONDS", seconds),
        ("LISTEN", "127.0.0.1:0"),
    ];
    Program::start(env!("CARGO_BIN_EXE_guarded"), &settings)
}

#[tokio::test(flavor = "multi_thread")]
async fn start_is_repeated_until_the_store_is_available() {
    let redis = Redis::start();
    let wire = Wire::to(redis.address());
    wire.refuse(true);

    let mut program = start(&wire.url_of("redis"), "100");
    until("two attempts", async || {
        (wire.traffic().refused >= 2).then_some(())
    })
    .await;
    wire.refuse(false);

    program.line("migrated under token ").await;
    program.url().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acquire_that_timed_out_leaves_the_queue() {
    let redis = Redis::start();
    let locks = leasehold::open(&redis.url()).await.expect("it opens");
    let guard = locks.mutex("migration").acquire().await.expect("granted");
    let mut program = start(&redis.url(), "2");
    until_lock(&locks, "migration", |state| state.waiters().count() == 1).await;

    program.line("Error: request timed out").await;

    assert_eq!(program.ended().await.code(), Some(1));
    let state = locks
        .inspect("migration")
        .await
        .expect("the server replies");
    assert_eq!(state.entries.len(), 1, "{state:?}");
    guard.release().await.expect("it was not lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn request_runs_under_the_lock_of_its_path() {
    let redis = Redis::start();
    let locks = leasehold::open(&redis.url()).await.expect("it opens");
    let mut program = start(&redis.url(), "100");
    let url = program.url().await;
    let guard = locks.mutex("/reports/a").acquire().await.expect("granted");

    let (other, token) = post(&format!("{url}/reports/b")).await.expect("a reply");
    let (busy, text) = post(&format!("{url}/reports/a")).await.expect("a reply");

    assert_eq!((other, busy), (200, 423), "{text}");
    assert!(token.parse::<u64>().is_ok(), "{token:?} is not a token");
    let earlier = guard.token().get();
    guard.release().await.expect("it was not lost");
    let (status, token) = post(&format!("{url}/reports/a")).await.expect("a reply");
    assert_eq!(status, 200);
    assert!(token.parse::<u64>().expect("a token") > earlier);
}
