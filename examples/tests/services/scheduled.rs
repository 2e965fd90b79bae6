//! The program `scheduled`: a job that runs once in each period.

use lab_servers::{Postgres, Redis};
use leasehold::fence;
use nix::sys::signal::Signal;

use crate::accounts::database_url;
use crate::program::{Program, until};

/// The table allows a second report of a period, so that the test would see it.
fn database() -> Postgres {
    let postgres = Postgres::start();
    let mut session = postgres.session();
    assert!(session.run(fence::sql::TABLE).is_empty());
    let table = "CREATE TABLE reports (period bigint NOT NULL, replica text NOT NULL)";
    assert!(session.run(table).is_empty());
    postgres
}

fn start(redis: &Redis, postgres: &Postgres, replica: &str) -> Program {
    let store = format!("{}?crash-grace=2s", redis.url());
    let settings = [
        ("LEASEHOLD_STORE", &*store),
        ("DATABASE_URL", &database_url(postgres)),
        ("PERIOD_SECONDS", "1"),
        ("REPLICA", replica),
    ];
    Program::start(env!("CARGO_BIN_EXE_scheduled"), &settings)
}

/// The periods of all reports, in the order in which they were written.
fn periods(postgres: &Postgres) -> Vec<i64> {
    let rows = postgres.session().run("SELECT period FROM reports");
    rows.iter()
        .map(|row| row.parse().expect("a number"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn job_runs_once_in_each_period() {
    let redis = Redis::start();
    let postgres = database();
    let mut one = start(&redis, &postgres, "one");
    let mut two = start(&redis, &postgres, "two");

    let last = until("five reports", async || {
        let periods = periods(&postgres);
        periods.last().copied().filter(|_| periods.len() >= 5)
    })
    .await;
    for program in [&mut one, &mut two] {
        program.signal(Signal::SIGTERM);
        assert!(program.ended().await.success());
    }

    let periods = periods(&postgres);
    let is_once = |pair: &[i64]| pair[0] < pair[1];
    assert!(periods.windows(2).all(is_once), "{periods:?}");
    assert!(periods.last() >= Some(&last));
}

/// The table is locked, so that the job of the first replica is under way when the replica is
/// killed.
#[tokio::test(flavor = "multi_thread")]
async fn job_of_killed_replica_is_run_by_another() {
    let redis = Redis::start();
    let postgres = database();
    let mut operator = postgres.session();
    operator.run("BEGIN");
    operator.run("LOCK TABLE reports IN SHARE MODE");

    let one = start(&redis, &postgres, "one");
    let mut observer = postgres.session();
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    until("the first replica to write its report", async || {
        (observer.run(waiting) == ["1"]).then_some(())
    })
    .await;
    let _two = start(&redis, &postgres, "two");
    one.signal(Signal::SIGKILL);
    operator.run("COMMIT");

    let replicas = until("a report", async || {
        let replicas = observer.run("SELECT replica FROM reports");
        (!replicas.is_empty()).then_some(replicas)
    })
    .await;
    assert_eq!(replicas[0], "two", "a killed replica has written");
}
