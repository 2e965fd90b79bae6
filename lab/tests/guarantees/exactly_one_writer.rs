//! Transactions on PostgreSQL that stand still for longer than the lease of their lock.
//!
//! Writers in processes of their own read the number of a row, and write the next one, each in a
//! transaction under the lock of the row. The processes are stopped at random times: in a statement,
//! between two, while the server sends, and before the commit. An update is lost if two transactions
//! have read the same number.
//!
//! `LAB_STOPS` is how many transactions are stopped; `cargo xtask nightly` stops a thousand.
//!
//! Shows G-01.

use std::collections::BTreeMap;
use std::io::stdin;
use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures_util::future::join_all;
use lab::{Peer, Random};
use lab_servers::{PgBouncer, Postgres};
use leasehold::{Guard, Locks};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls};

const NAMES: u64 = 20;
const PROCESSES: u64 = 3;
const STOPS: u64 = 20;
const LEASE: Duration = Duration::from_millis(600);
/// The outcome of a transaction whose guard was known to be lost before its check.
const GIVEN_UP: &str = "given up";
/// The environment variable with the settings of a writer.
const WRITER: &str = "LAB_WRITER";

/// What protects the row in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Protection {
    /// `leasehold.check`, with and without a limit for an idle transaction.
    Check,
    /// A plain SELECT compares the token with the largest one that a holder has written.
    ComparedToken,
}

/// The settings of the writers of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Settings {
    store: String,
    /// Where the transactions go: the server, and a pooler in transaction mode.
    databases: Vec<String>,
    protection: Protection,
    levels: Vec<String>,
    seed: u64,
}

/// How many transactions ended how: `committed` or an SQLSTATE, with `late` before it if the hold was
/// lost by then.
type Outcomes = BTreeMap<String, u64>;

#[test]
fn stopped_transactions_with_a_check_lose_no_update() -> Result<()> {
    let database = TestDatabase::start();
    let stops = std::env::var("LAB_STOPS").map_or(Ok(STOPS), |stops| stops.parse())?;
    let levels = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
    let mut writers = Writers::start(&database, Protection::Check, &levels)?;
    let mut delayed = 0;
    // Most stops hit several transactions.
    for _ in 0..stops {
        delayed += writers.stop_for_longer_than_a_lease(&database)?;
        if of_stopped(&writers.outcomes()?, |_| true) >= stops {
            break;
        }
    }
    let outcomes = writers.end()?;

    let committed = of_stopped(&outcomes, |outcome| outcome == "committed");
    let failed = of_stopped(&outcomes, |outcome| outcome != "committed");
    let (updates, lost) = database.count_updates();
    println!(
        "{} stopped past their lease: {committed} committed before the next grant, {failed} failed; \
         {delayed} next holders waited; {lost} of {updates} updates lost; {outcomes:?}",
        committed + failed
    );
    ensure!(lost == 0, "{lost} updates were lost");
    ensure!(committed + failed >= stops, "too few were stopped");
    let often = stops / 10;
    ensure!(delayed >= often, "{delayed} next holders waited");
    ensure!(failed >= often, "{failed} late commits failed");
    Ok(())
}

/// The comparison takes place before the stop, and the write after it.
#[test]
fn stopped_transactions_with_a_compared_token_lose_updates() -> Result<()> {
    let database = TestDatabase::start();
    loses_updates(&database, Protection::ComparedToken)
}

/// The check reads the grant, and nothing keeps the next holder from being granted after it.
#[test]
fn stopped_transactions_with_a_check_that_pins_nothing_lose_updates() -> Result<()> {
    let database = TestDatabase::start();
    let check = "'leasehold.check(text, bigint, uuid, interval)'::regprocedure";
    let text = database
        .server
        .run(&format!("SELECT pg_get_functiondef({check})"));
    let without_pin: Vec<String> = text
        .iter()
        .filter(|line| !line.contains("pg_advisory_xact_lock_shared"))
        .cloned()
        .collect();
    ensure!(without_pin.len() + 1 == text.len(), "the pin is one line");
    let errors = database.server.run(&without_pin.join("\n"));
    ensure!(errors.is_empty(), "{errors:?}");
    loses_updates(&database, Protection::Check)
}

fn loses_updates(database: &TestDatabase, protection: Protection) -> Result<()> {
    /// In most rounds several updates are lost.
    const ROUNDS_MAX: u32 = 30;
    let mut writers = Writers::start(database, protection, &["READ COMMITTED"])?;
    for _ in 0..ROUNDS_MAX {
        writers.stop_for_longer_than_a_lease(database)?;
        let (updates, lost) = database.count_updates();
        if lost > 0 {
            let outcomes = writers.end()?;
            println!("{protection:?}: {lost} of {updates} updates lost; {outcomes:?}");
            return Ok(());
        }
    }
    bail!("no update was lost")
}

/// How many transactions whose hold was lost in between ended so.
fn of_stopped(outcomes: &Outcomes, is_meant: impl Fn(&str) -> bool) -> u64 {
    let late = outcomes.iter().filter_map(|(outcome, count)| {
        let outcome = outcome.strip_prefix("late ")?;
        (outcome != GIVEN_UP && is_meant(outcome)).then_some(count)
    });
    late.sum()
}

/// A server with the rows that the writers change.
struct TestDatabase {
    server: Postgres,
    pooler: PgBouncer,
}

impl TestDatabase {
    fn start() -> Self {
        let server = Postgres::start();
        let tables = "CREATE TABLE cell (name text PRIMARY KEY, value bigint NOT NULL, \
            token bigint NOT NULL DEFAULT 0);
            CREATE TABLE written (name text NOT NULL, token bigint NOT NULL);
            INSERT INTO cell SELECT 'row' || n, 0 FROM generate_series(0, 19) n";
        assert_eq!(server.run(tables), [""; 0]);
        let setup = leasehold::stores::Postgres::builder(&Self::url(&server.address()));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let made = runtime
            .expect("a runtime")
            .block_on(setup.expect("a URL").set_up(&[]));
        made.expect("the schema is made");
        Self {
            pooler: PgBouncer::with_pool(&server, "transaction", 60),
            server,
        }
    }

    fn url(address: &str) -> String {
        format!("postgres://postgres@{address}/postgres")
    }

    /// Returns how many updates were committed, and how many of them are lost.
    fn count_updates(&self) -> (u64, u64) {
        let sums = "SELECT (SELECT count(*) FROM written), \
            (SELECT count(*) FROM written) - (SELECT sum(value) FROM cell)";
        let reply = self.server.run(sums);
        let (updates, lost) = reply[0].split_once('|').expect("two columns");
        (
            updates.parse().expect("a number"),
            lost.parse().expect("a number"),
        )
    }

    /// Returns how many locks have a waiter, while a transaction pins the grant of a hold that is over.
    fn delayed_holders(&self) -> u64 {
        let delayed = "SELECT count(*) FROM leasehold_private.lock l WHERE l.waiting > 0 \
            AND EXISTS (SELECT 1 FROM leasehold.pins_1(l.name) p WHERE p.overdue > 0)";
        self.server.run(delayed)[0].parse().expect("a number")
    }
}

/// The processes of the writers.
struct Writers {
    processes: Vec<Peer>,
    random: Random,
}

impl Writers {
    fn start(database: &TestDatabase, protection: Protection, levels: &[&str]) -> Result<Self> {
        let [direct, pooled] =
            [database.server.address(), database.pooler.address()].map(|it| TestDatabase::url(&it));
        let seed = u64::from(std::process::id());
        println!("seed {seed}");
        let processes = (0..PROCESSES).map(|number| {
            let settings = Settings {
                store: direct.clone(),
                databases: vec![direct.clone(), pooled.clone()],
                protection,
                levels: levels.iter().map(ToString::to_string).collect(),
                seed: seed + number * NAMES,
            };
            let mut command = Peer::command(std::env::current_exe()?);
            command
                .args(["--exact", "exactly_one_writer::writers", "--nocapture"])
                .env(WRITER, serde_json::to_string(&settings)?);
            Peer::start(&mut command)
        });
        let mut writers = Self {
            processes: processes.collect::<Result<_>>()?,
            random: Random::seeded(seed),
        };
        // Each process replies once its writers run.
        writers.outcomes()?;
        Ok(writers)
    }

    /// Stops one of the processes for one lease to three. Returns how many next holders wait for its
    /// transactions before it goes on.
    fn stop_for_longer_than_a_lease(&mut self, database: &TestDatabase) -> Result<u64> {
        let number = self.random.below(PROCESSES);
        let process = &self.processes[usize::try_from(number)?];
        let pid = Pid::from_raw(process.pid().try_into()?).context("a process id")?;
        thread::sleep(Duration::from_millis(self.random.below(200)));
        kill_process(pid, Signal::STOP)?;
        thread::sleep(LEASE + Duration::from_millis(100));
        let delayed = database.delayed_holders();
        thread::sleep(LEASE.mul_f64(0.001) * u32::try_from(self.random.below(1_500))?);
        kill_process(pid, Signal::CONT)?;
        // The others have stopped writers too, if the processes are stopped too close together.
        thread::sleep(LEASE / 2);
        Ok(delayed)
    }

    fn outcomes(&mut self) -> Result<Outcomes> {
        self.ask("count")
    }

    fn end(mut self) -> Result<Outcomes> {
        self.ask("end")
    }

    fn ask(&mut self, request: &str) -> Result<Outcomes> {
        let mut all = Outcomes::new();
        for process in &mut self.processes {
            process.send_line(request)?;
            // The harness prints its own lines before.
            let line = loop {
                let line = process.receive_line()?;
                if line.starts_with('{') {
                    break line;
                }
            };
            for (outcome, count) in serde_json::from_str::<Outcomes>(&line)? {
                *all.entry(outcome).or_default() += count;
            }
        }
        Ok(all)
    }
}

/// Not a test: [`Writers`] runs it in processes of their own.
#[test]
fn writers() -> Result<()> {
    let Ok(settings) = std::env::var(WRITER) else {
        return Ok(());
    };
    let settings: Arc<Settings> = Arc::new(serde_json::from_str(&settings)?);
    let ends = Arc::new(AtomicBool::new(false));
    let outcomes: Arc<std::sync::Mutex<Outcomes>> = Arc::default();
    let print = {
        let outcomes = Arc::clone(&outcomes);
        move || {
            let outcomes = outcomes.lock().expect("no panic");
            println!("\n{}", serde_json::to_string(&*outcomes).expect("text"));
        }
    };

    let asked = Arc::clone(&ends);
    let reply = print.clone();
    thread::spawn(move || {
        for request in stdin().lines().map_while(Result::ok) {
            if request == "end" {
                break;
            }
            reply();
        }
        asked.store(true, Ordering::Relaxed);
    });

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let locks = leasehold::open(&settings.store).await?;
        let writers = (0..NAMES).map(|name| {
            let record = |outcome: String| {
                *outcomes
                    .lock()
                    .expect("no panic")
                    .entry(outcome)
                    .or_default() += 1;
            };
            Writer {
                settings: &settings,
                name: format!("row{name}"),
                random: Random::seeded(settings.seed + name),
                client: None,
            }
            .run(&locks, &ends, record)
        });
        join_all(writers).await.into_iter().collect::<Result<()>>()
    })?;
    print();
    Ok(())
}

/// Writes one row again and again.
struct Writer<'a> {
    settings: &'a Settings,
    name: String,
    random: Random,
    client: Option<Client>,
}

/// How a transaction ended without an error.
enum Written {
    Committed,
    /// The hold was known to be lost.
    GivenUp,
}

/// Before which step a transaction takes longer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Check,
    Read,
    Write,
    Commit,
}

const STEPS: [Before; 4] = [Before::Check, Before::Read, Before::Write, Before::Commit];

impl Writer<'_> {
    async fn run(
        mut self,
        locks: &Locks,
        ends: &AtomicBool,
        record: impl Fn(String),
    ) -> Result<()> {
        while !ends.load(Ordering::Relaxed) {
            // Both fail after a stop.
            let Ok(guard) = locks.mutex(&self.name).lease(LEASE).acquire().await else {
                continue;
            };
            let Ok(client) = self.connected().await else {
                continue;
            };
            let written = self.write(&client, &guard).await;
            let late = if guard.check().is_err() { "late " } else { "" };
            match written {
                Ok(Written::Committed) => record(format!("{late}committed")),
                Ok(Written::GivenUp) => record(format!("{late}{GIVEN_UP}")),
                Err(error) => {
                    let state = error.code().map_or("connection", |code| code.code());
                    record(format!("{late}{state}"));
                    // The session may have ended, and rolls back.
                    let _ = client.batch_execute("ROLLBACK").await;
                }
            }
            self.client = Some(client).filter(|client| !client.is_closed());
            // The error of a lost hold, which the outcome has already.
            let _ = guard.release().await;
        }
        Ok(())
    }

    async fn connected(&mut self) -> Result<Client> {
        if let Some(client) = self.client.take() {
            return Ok(client);
        }
        let database = self.random.chosen(&self.settings.databases);
        let (client, connection) = tokio_postgres::connect(database, NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Reads the number of the row, and writes the next one.
    async fn write(
        &mut self,
        client: &Client,
        guard: &Guard,
    ) -> Result<Written, tokio_postgres::Error> {
        let slow = *self.random.chosen(&STEPS);
        let level = self.random.chosen(&self.settings.levels);
        let name: (&(dyn ToSql + Sync), Type) = (&self.name.clone(), Type::TEXT);
        let token: (&(dyn ToSql + Sync), Type) = (&guard.token().to_i64(), Type::INT8);
        if self.settings.protection == Protection::ComparedToken {
            let raise = "UPDATE cell SET token = greatest(token, $2) WHERE name = $1";
            client
                .query_typed(raise, &[name.clone(), token.clone()])
                .await?;
        }

        let begin = format!("BEGIN ISOLATION LEVEL {level}");
        client.batch_execute(&begin).await?;
        self.pause(client, slow == Before::Check).await?;
        if !self.is_allowed(client, guard).await? {
            client.batch_execute("ROLLBACK").await?;
            return Ok(Written::GivenUp);
        }
        self.pause(client, slow == Before::Read).await?;
        let read = "SELECT value FROM cell WHERE name = $1";
        let row = client.query_typed(read, from_ref(&name)).await?.remove(0);
        let value: i64 = row.get(0);

        self.pause(client, slow == Before::Write).await?;
        let write = "UPDATE cell SET value = $2 WHERE name = $1";
        let next = value + 1;
        let next: (&(dyn ToSql + Sync), Type) = (&next, Type::INT8);
        client.query_typed(write, &[name.clone(), next]).await?;
        let count = "INSERT INTO written VALUES ($1, $2)";
        client.query_typed(count, &[name, token]).await?;
        self.pause(client, slow == Before::Commit).await?;
        client.batch_execute("COMMIT").await?;
        Ok(Written::Committed)
    }

    /// Whether the grant is still there, by what protects the row.
    async fn is_allowed(
        &mut self,
        client: &Client,
        guard: &Guard,
    ) -> Result<bool, tokio_postgres::Error> {
        if self.settings.protection == Protection::ComparedToken {
            let largest = "SELECT token FROM cell WHERE name = $1";
            let name: (&(dyn ToSql + Sync), Type) = (&self.name, Type::TEXT);
            let row = client.query_typed(largest, &[name]).await?.remove(0);
            return Ok(row.get::<_, i64>(0) <= guard.token().to_i64());
        }

        // The guard may be lost by now: then it binds nothing.
        let Ok(binds) = guard.check_binds() else {
            return Ok(false);
        };
        // Without the limit, a session that is stopped is ended by the next holder alone.
        let remaining = Some(binds.remaining_ms).filter(|_| self.random.below(2) == 0);
        let arguments: [(&(dyn ToSql + Sync), Type); 4] = [
            (&binds.name, Type::TEXT),
            (&binds.token, Type::INT8),
            (&binds.claim, Type::TEXT),
            (&remaining, Type::INT8),
        ];
        client.query_typed(&binds.statement, &arguments).await?;
        Ok(true)
    }

    /// Stands still for a moment, in the client, in a statement, or while the server sends.
    async fn pause(&mut self, client: &Client, is_slow: bool) -> Result<(), tokio_postgres::Error> {
        if !is_slow {
            return Ok(());
        }
        match self.random.below(3) {
            0 => sleep(PAUSE).await,
            1 => client.batch_execute("SELECT pg_sleep(0.05)").await?,
            _ => {
                let large = "SELECT repeat('x', 100000) FROM generate_series(1, 10)";
                client.query_typed(large, &[]).await?;
            }
        }
        Ok(())
    }
}

const PAUSE: Duration = Duration::from_millis(50);
