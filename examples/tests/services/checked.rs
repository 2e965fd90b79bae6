//! The program `checked`: the commit of a holder that stood still for too long fails.

use lab_servers::{DEADLINE, Postgres};
use nix::sys::signal::Signal;
use tokio::time::timeout;

use crate::accounts::database_url;
use crate::program::{self, Program, until};

fn start(postgres: &Postgres) -> Program {
    let settings = [
        ("LEASEHOLD_STORE", &*postgres.url()),
        ("DATABASE_URL", &database_url(postgres)),
        ("LISTEN", "127.0.0.1:0"),
    ];
    Program::start(env!("CARGO_BIN_EXE_checked"), &settings)
}

/// Shows G-01.
#[tokio::test(flavor = "multi_thread")]
async fn late_commit_of_a_stopped_service_fails() {
    let postgres = Postgres::start();
    let mut session = postgres.session();
    assert!(session.run("CREATE TABLE orders (id int PRIMARY KEY, total bigint)") == [""; 0]);
    assert!(session.run("INSERT INTO orders VALUES (42, 100)") == [""; 0]);
    let mut early = start(&postgres);
    let mut later = start(&postgres);
    let [early_url, later_url] = [early.url().await, later.url().await];

    // The transaction has read the total, and its write waits for the row.
    session.run("BEGIN");
    assert_eq!(session.run("SELECT total FROM orders FOR UPDATE"), ["100"]);
    let late =
        tokio::spawn(async move { program::post(&format!("{early_url}/orders/42/add/7")).await });
    let mut observer = postgres.session();
    until("the write to wait for the row", async || {
        let waits = "SELECT count(*) FROM pg_stat_activity \
            WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE orders%'";
        (observer.run(waits) == ["1"]).then_some(())
    })
    .await;
    early.stop().await;
    session.run("COMMIT");

    let next = format!("{later_url}/orders/42/add/20");
    let next = timeout(DEADLINE, program::post(&next)).await;
    let next = next.expect("the next holder waits for no row");
    assert_eq!(next, Some((200, "120".to_owned())));
    early.signal(Signal::SIGCONT);
    let (status, text) = late.await.expect("it does not panic").expect("it replies");
    assert_eq!(status, 502, "{text}");
    assert_eq!(session.run("SELECT total FROM orders"), ["120"]);
}
