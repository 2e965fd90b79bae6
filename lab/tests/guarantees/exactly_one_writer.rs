//! Transactions on PostgreSQL that stand still for longer than the lease of their lock.
//!
//! Writers in processes of their own read the number of a row, and write the next one, each in a
//! transaction under the lock of the row. The processes are stopped at random times: in a statement,
//! between two, while the server sends, and before the commit. An update is lost if two transactions
//! have read the same number. Each test prints rows of one table.
//!
//! `LAB_STOPS` is how many transactions are stopped; `cargo xtask nightly` stops a thousand. The other
//! protections stop a tenth of them.
//!
//! Shows G-01.

mod writer;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::{Peer, Random, until};
use lab_servers::{PgBouncer, Postgres, Wire};
use rustix::process::{Pid, Signal, kill_process};
use writer::{GIVEN_UP, Outcomes, POINTS, Protection, Report, Settings, WRITER};

const NAMES: u64 = 20;
const PROCESSES: u64 = 3;
const STOPS: u64 = 10;
const LEASE: Duration = Duration::from_millis(600);
/// One stop of so many ends with the promotion of the replica.
const STOPS_PER_PROMOTION: u64 = 8;
const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

#[test]
fn stopped_transactions_with_a_check_lose_no_update() -> Result<()> {
    let stops = stops()?;
    let mut database = TestDatabase::start();
    database.follow();
    let mut run = Run::start(&mut database, Protection::Check, &LEVELS)?;
    let mut promotions = 0;
    let often = stops / 10;
    // Most rounds stop several transactions, and delay a next holder.
    let rounds_max = stops + 20;
    while run.rounds < 2
        || run.rounds < rounds_max && (run.stopped()? < stops || run.delayed < often)
    {
        let promotes = run.rounds % STOPS_PER_PROMOTION == 1;
        promotions += u64::from(promotes);
        run.stop_for_longer_than_a_lease(promotes)?;
    }
    let result = run.end("`leasehold.check`, with promotions")?;

    println!(
        "\n{} next holders waited, {} transactions failed with 40001, {promotions} promotions; {:?}",
        result.delayed,
        of(&result.outcomes, |outcome| outcome.ends_with("40001")),
        result.outcomes
    );
    for point in POINTS {
        let stopped = of(&result.points, |stopped| stopped == point);
        println!("{stopped} transactions were stopped {point}");
        ensure!(stopped >= stops / 100, "{stopped} were stopped {point}");
    }
    ensure!(result.lost == 0, "{} updates were lost", result.lost);
    let committed = of(&result.outcomes, |outcome| outcome == "late committed");
    let failed = result.failed();
    ensure!(committed + failed >= stops, "too few were stopped");
    let acknowledged = of(&result.outcomes, |outcome| outcome.ends_with("committed"));
    ensure!(acknowledged <= result.updates, "a promotion lost a commit");
    ensure!(
        result.delayed >= often,
        "{} next holders waited",
        result.delayed
    );
    ensure!(failed >= often, "{failed} late commits failed");
    Ok(())
}

/// The comparison takes place before the stop, and the write after it.
#[test]
fn stopped_transactions_with_a_compared_token_lose_updates() -> Result<()> {
    loses_updates(
        &mut TestDatabase::start(),
        Protection::ComparedToken,
        "token compared by a plain SELECT",
    )
}

/// The check reads the grant, and nothing keeps the next holder from being granted after it.
#[test]
fn stopped_transactions_with_a_check_that_pins_nothing_lose_updates() -> Result<()> {
    let mut database = TestDatabase::start();
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
    loses_updates(
        &mut database,
        Protection::Check,
        "`leasehold.check` without its pin",
    )
}

fn loses_updates(database: &mut TestDatabase, protection: Protection, name: &str) -> Result<()> {
    /// In most rounds several updates are lost.
    const ROUNDS_MAX: u64 = 30;
    let stops = stops()? / 10;
    let mut run = Run::start(database, protection, &LEVELS[..1])?;
    while run.rounds < ROUNDS_MAX {
        run.stop_for_longer_than_a_lease(false)?;
        let (_, lost) = run.database.count_updates();
        if lost > 0 && run.stopped()? >= stops {
            break;
        }
    }
    let result = run.end(name)?;
    ensure!(result.lost > 0, "no update was lost");
    Ok(())
}

/// What a program can do without the check, and the check beside it. PostgreSQL ends the sessions of all
/// that stand still for longer than a lease.
#[test]
fn stopped_transactions_with_exact_protections_lose_no_update() -> Result<()> {
    let stops = stops()? / 10;
    let mut database = TestDatabase::start();
    for (protection, name) in [
        (Protection::Check, "`leasehold.check`"),
        (
            Protection::FenceRow,
            "token compared with a row that is `SELECT … FOR UPDATE`",
        ),
        (
            Protection::LeaseRow,
            "lease written in the same transaction",
        ),
        (
            Protection::TransactionLock,
            "`pg_advisory_xact_lock` around the transaction",
        ),
        (
            Protection::SessionLock,
            "`pg_advisory_lock` of the connection that writes",
        ),
    ] {
        database.reset();
        let mut run = Run::start(&mut database, protection, &LEVELS[..1])?;
        while run.rounds == 0 || run.stopped()? < stops {
            run.stop_for_longer_than_a_lease(false)?;
        }
        let result = run.end(name)?;
        ensure!(result.lost == 0, "{name}: {} updates lost", result.lost);
    }
    Ok(())
}

fn stops() -> Result<u64> {
    Ok(std::env::var("LAB_STOPS").map_or(Ok(STOPS), |stops| stops.parse())?)
}

/// How many transactions ended so.
fn of(outcomes: &Outcomes, is_meant: impl Fn(&str) -> bool) -> u64 {
    let meant = outcomes.iter().filter(|(outcome, _)| is_meant(outcome));
    meant.map(|(_, count)| count).sum()
}

/// Whether the hold of a transaction was lost in between, and it did not know that.
fn is_late(outcome: &str) -> bool {
    outcome
        .strip_prefix("late ")
        .is_some_and(|outcome| outcome != GIVEN_UP)
}

/// A server with the rows that the writers change, and perhaps a synchronous replica of it.
struct TestDatabase {
    server: Postgres,
    replica: Option<Postgres>,
    /// Leads to the server.
    front: Wire,
    pooler: PgBouncer,
}

impl TestDatabase {
    fn start() -> Self {
        let server = Postgres::start();
        let tables = "CREATE TABLE cell (name text PRIMARY KEY, value bigint NOT NULL, \
            token bigint NOT NULL DEFAULT 0);
            CREATE TABLE written (name text NOT NULL, token bigint NOT NULL);
            CREATE TABLE lease (name text PRIMARY KEY, owner bigint, ends timestamptz);
            INSERT INTO cell SELECT 'row' || n, 0 FROM generate_series(0, 19) n;
            INSERT INTO lease SELECT name FROM cell";
        assert_eq!(server.run(tables), [""; 0]);
        let front = Wire::to(server.address());
        let database = Self {
            pooler: PgBouncer::behind(&front, "transaction", 60),
            server,
            replica: None,
            front,
        };
        let setup = leasehold::stores::Postgres::builder(&url(&database.server.address()));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let made = runtime
            .expect("a runtime")
            .block_on(setup.expect("a URL").set_up(&[]));
        made.expect("the schema is made");
        database
    }

    /// Prepares the rows for other writers.
    fn reset(&self) {
        let reset = "TRUNCATE written; UPDATE cell SET value = 0, token = 0; \
            UPDATE lease SET owner = NULL";
        assert_eq!(self.server.run(reset), [""; 0]);
    }

    /// Starts a synchronous replica of the server.
    fn follow(&mut self) {
        self.replica = Some(self.server.replica());
        self.server
            .run("ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.server.run("SELECT pg_reload_conf()");
        let sync = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        until("the replica is synchronous", || {
            Ok((self.server.run(sync) == ["1"]).then_some(()))
        })
        .expect("it follows");
    }

    /// Ends the server, so that it accepts no more writes, and promotes its replica.
    fn promote(&mut self) {
        self.server.stop();
        self.server = self.replica.take().expect("it follows");
        self.server.promote();
        self.front.lead_to(self.server.address());
        self.front.partition();
        self.follow();
    }

    /// Returns how many updates were committed, and how many of them are lost.
    fn count_updates(&self) -> (u64, u64) {
        let sums = "SELECT (SELECT count(*) FROM written), \
            (SELECT count(*) FROM written) - (SELECT sum(value) FROM cell)";
        let [updates, lost] = self.numbers(sums);
        (updates, lost)
    }

    /// Returns how many locks have a waiter while a transaction pins the grant of a hold that is over,
    /// and how many sessions wait for a lock of the server.
    fn waiting(&self) -> [u64; 2] {
        let waiting = "SELECT (SELECT count(*) FROM leasehold_private.lock l WHERE l.waiting > 0 \
            AND EXISTS (SELECT 1 FROM leasehold.pins_1(l.name) p WHERE p.overdue > 0)), \
            count(*) FILTER (WHERE a.wait_event_type = 'Lock') FROM pg_stat_activity a";
        self.numbers(waiting)
    }

    /// Returns the columns of the only row of a query.
    fn numbers<const N: usize>(&self, query: &str) -> [u64; N] {
        let reply = self.server.run(query);
        let numbers = reply[0].split('|').map(|it| it.parse().expect("a number"));
        let numbers: Vec<u64> = numbers.collect();
        numbers.try_into().expect("as many columns")
    }
}

fn url(address: &str) -> String {
    format!("postgres://postgres@{address}/postgres")
}

/// The processes of the writers on a database, and what was seen of them.
struct Run<'a> {
    database: &'a mut TestDatabase,
    processes: Vec<Peer>,
    random: Random,
    started: Instant,
    rounds: u64,
    delayed: u64,
    /// The most sessions that waited for a lock of the server.
    blocked: u64,
}

/// What a run has come to.
struct Outcome {
    outcomes: Outcomes,
    updates: u64,
    lost: u64,
    delayed: u64,
    points: Outcomes,
}

impl Outcome {
    /// How many transactions were stopped past their lease, and failed.
    fn failed(&self) -> u64 {
        of(&self.outcomes, |outcome| {
            is_late(outcome) && !outcome.ends_with("committed")
        })
    }
}

impl<'a> Run<'a> {
    fn start(
        database: &'a mut TestDatabase,
        protection: Protection,
        levels: &[&str],
    ) -> Result<Self> {
        let [direct, pooled] =
            [database.front.address(), database.pooler.address()].map(|it| url(&it));
        // A pooler takes a lock of the session away.
        let databases = match protection {
            Protection::SessionLock => vec![direct.clone()],
            _ => vec![direct.clone(), pooled],
        };
        let seed = u64::from(std::process::id());
        println!("seed {seed}");
        let processes = (0..PROCESSES).map(|number| {
            let settings = Settings {
                store: direct.clone(),
                databases: databases.clone(),
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
        let mut run = Self {
            processes: processes.collect::<Result<_>>()?,
            random: Random::seeded(seed),
            database,
            started: Instant::now(),
            rounds: 0,
            delayed: 0,
            blocked: 0,
        };
        // Each process replies once its writers run.
        run.ask("count")?;
        run.started = Instant::now();
        Ok(run)
    }

    /// Stops one of the processes for one lease to three, and perhaps promotes the replica meanwhile.
    fn stop_for_longer_than_a_lease(&mut self, promotes: bool) -> Result<()> {
        let number = self.random.below(PROCESSES);
        let process = &self.processes[usize::try_from(number)?];
        let pid = Pid::from_raw(process.pid().try_into()?).context("a process id")?;
        thread::sleep(Duration::from_millis(self.random.below(200)));
        kill_process(pid, Signal::STOP)?;
        thread::sleep(LEASE / 2);
        let [_, blocked] = self.database.waiting();
        thread::sleep(LEASE / 2 + Duration::from_millis(100));
        let [delayed, _] = self.database.waiting();
        if promotes {
            self.database.promote();
        }
        thread::sleep(LEASE.mul_f64(0.001) * u32::try_from(self.random.below(1_500))?);
        kill_process(pid, Signal::CONT)?;
        // The others have stopped writers too, if the processes are stopped too close together.
        thread::sleep(LEASE / 2);

        self.rounds += 1;
        self.delayed += delayed;
        self.blocked = self.blocked.max(blocked);
        Ok(())
    }

    /// How many transactions were stopped past their lease.
    fn stopped(&mut self) -> Result<u64> {
        Ok(of(&self.ask("count")?.outcomes, is_late))
    }

    /// Ends the writers, and prints a row of the table.
    fn end(mut self, name: &str) -> Result<Outcome> {
        let mut report = self.ask("end")?;
        let seconds = self.started.elapsed().as_secs_f64();
        let (updates, lost) = self.database.count_updates();
        let outcome = Outcome {
            outcomes: report.outcomes,
            updates,
            lost,
            delayed: self.delayed,
            points: report.points,
        };

        report.waits.sort_unstable();
        let waits = &report.waits;
        let wait = |permille: usize| waits[(waits.len() - 1) * permille / 1_000];
        let failed = outcome.failed();
        println!(
            "| protection | lost | stopped: committed | failed | updates | acquisitions a second | \
             wait: median | 99 % | longest | blocked sessions, most |\n\
             | {name} | {lost} | {} | {failed} | {updates} | {:.0} | {} ms | {} ms | {} ms | {} |",
            of(&outcome.outcomes, is_late) - failed,
            f64::from(u32::try_from(waits.len())?) / seconds,
            wait(500),
            wait(990),
            wait(1_000),
            self.blocked,
        );
        Ok(outcome)
    }

    fn ask(&mut self, request: &str) -> Result<Report> {
        let mut all = Report::default();
        for process in &mut self.processes {
            process.send_line(request)?;
        }
        for process in &mut self.processes {
            // The harness prints its own lines before.
            let line = loop {
                let line = process.receive_line()?;
                if line.starts_with('{') {
                    break line;
                }
            };
            let report: Report = serde_json::from_str(&line)?;
            for (sums, counts) in [
                (&mut all.outcomes, report.outcomes),
                (&mut all.points, report.points),
            ] {
                for (outcome, count) in counts {
                    *sums.entry(outcome).or_default() += count;
                }
            }
            all.waits.extend(report.waits);
        }
        Ok(all)
    }
}

/// Not a test: [`Run`] executes it in processes of their own.
#[test]
fn writers() -> Result<()> {
    match std::env::var(WRITER) {
        Ok(settings) => writer::run(serde_json::from_str(&settings)?),
        Err(_) => Ok(()),
    }
}
