//! The program `accounts`: the database rejects the transaction of an earlier holder.

use lab_servers::{Postgres, Redis};
use leasehold::fence;
use nix::sys::signal::Signal;

use crate::program::Program;

fn database() -> Postgres {
    let postgres = Postgres::start();
    let mut session = postgres.session();
    assert!(session.run(fence::sql::TABLE).is_empty());
    let table = "CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL)";
    assert!(session.run(table).is_empty());
    let row = "INSERT INTO accounts VALUES (42, 100)";
    assert!(session.run(row).is_empty());
    postgres
}

fn start(redis: &Redis, postgres: &Postgres) -> Program {
    let settings = [
        ("LEASEHOLD_STORE", &*redis.url()),
        ("DATABASE_URL", &database_url(postgres)),
        ("ACCOUNT", "42"),
    ];
    Program::start(env!("CARGO_BIN_EXE_accounts"), &settings)
}

/// The URL of a database that clients reach through a Unix socket.
pub(crate) fn database_url(postgres: &Postgres) -> String {
    let host = postgres.host().display();
    format!("postgres://postgres@localhost/postgres?host={host}")
}

#[tokio::test(flavor = "multi_thread")]
async fn write_of_earlier_holder_is_rejected() {
    let redis = Redis::start();
    let postgres = database();
    let mut early = start(&redis, &postgres);
    early.line("granted").await;
    early.stop().await;

    let mut later = start(&redis, &postgres);
    later.line("granted").await;
    later.send("20");
    assert_eq!(later.line("balance ").await, "120");
    assert!(later.ended().await.success());

    early.signal(Signal::SIGCONT);
    early.send("7");
    early.line("Error: rejected").await;
    assert_eq!(early.ended().await.code(), Some(1));
    let balance = "SELECT balance FROM accounts WHERE id = 42";
    assert_eq!(postgres.session().run(balance), ["120"]);
}
