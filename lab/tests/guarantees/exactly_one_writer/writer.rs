//! The writers: each reads the number of its row, and writes the next one in a transaction.

use std::collections::BTreeMap;
use std::io::stdin;
use std::slice::from_ref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures_util::future::join_all;
use lab::Random;
use leasehold::{Guard, Locks};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls};

use super::{LEASE, NAMES};

/// The outcome of a transaction that has found out by itself that its hold is lost.
pub(super) const GIVEN_UP: &str = "given up";
/// The environment variable with the settings of a writer.
pub(super) const WRITER: &str = "LAB_WRITER";
/// How long one step of a transaction takes longer than the others.
const PAUSE: Duration = Duration::from_millis(50);
/// The pause before another request, after a failed one or for a lease that is not over.
const RETRY: Duration = Duration::from_millis(20);

/// What protects the row in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Protection {
    /// `leasehold.check`, with and without a limit for an idle transaction.
    Check,
    /// A plain SELECT compares the token with the largest one that a holder has written.
    ComparedToken,
    /// `SELECT … FOR UPDATE` reads the largest token, and the transaction writes its own.
    FenceRow,
    /// The transaction extends the lease, which is a row of the same database.
    LeaseRow,
    /// `pg_advisory_xact_lock` at the beginning of the transaction.
    TransactionLock,
    /// `pg_advisory_lock` on the connection that writes.
    SessionLock,
}

impl Protection {
    fn has_guard(self) -> bool {
        matches!(self, Self::Check | Self::ComparedToken | Self::FenceRow)
    }
}

/// The settings of the writers of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Settings {
    pub(super) store: String,
    /// Where the transactions go: the server, and a pooler in transaction mode.
    pub(super) databases: Vec<String>,
    pub(super) protection: Protection,
    pub(super) levels: Vec<String>,
    pub(super) seed: u64,
}

/// How many transactions ended how: `committed` or an SQLSTATE, with `late` before it if the hold was
/// lost by then.
pub(super) type Outcomes = BTreeMap<String, u64>;

/// Where a transaction can stand still for longer than a lease.
pub(super) const POINTS: [&str; 4] = [IN_STATEMENT, BETWEEN_STATEMENTS, SENDING, BEFORE_COMMIT];
const IN_STATEMENT: &str = "in a statement";
const BETWEEN_STATEMENTS: &str = "between two statements";
const SENDING: &str = "while the server sent";
const BEFORE_COMMIT: &str = "before the commit";

/// What the writers of one process have done.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) outcomes: Outcomes,
    /// How many transactions stood still at each of the [`POINTS`]; empty before the end.
    pub(super) points: Outcomes,
    /// How long each acquisition took, in milliseconds; empty before the end.
    pub(super) waits: Vec<u32>,
}

/// Runs the writers of one process. Replies with a report to each line on stdin, and at the end.
pub(super) fn run(settings: Settings) -> Result<()> {
    let settings = Arc::new(settings);
    let ends = Arc::new(AtomicBool::new(false));
    let report: Arc<Mutex<Report>> = Arc::default();

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let locks = runtime.block_on(leasehold::open(&settings.store))?;

    let asked = Arc::clone(&ends);
    let counted = Arc::clone(&report);
    thread::spawn(move || {
        for request in stdin().lines().map_while(Result::ok) {
            if request == "end" {
                break;
            }
            let outcomes = counted.lock().expect("no panic").outcomes.clone();
            print(&Report {
                outcomes,
                ..Report::default()
            });
        }
        asked.store(true, Ordering::Relaxed);
    });

    runtime.block_on(async {
        let writers = (0..NAMES).map(|name| {
            let record = |outcome: String, waited: Duration, point: Option<&str>| {
                let mut report = report.lock().expect("no panic");
                *report.outcomes.entry(outcome).or_default() += 1;
                if let Some(point) = point {
                    *report.points.entry(point.to_owned()).or_default() += 1;
                }
                let waited = u32::try_from(waited.as_millis()).unwrap_or(u32::MAX);
                report.waits.push(waited);
            };
            Writer {
                settings: &settings,
                name: format!("row{name}"),
                random: Random::seeded(settings.seed + name),
                client: None,
                stood_at: None,
            }
            .run(&locks, &ends, record)
        });
        join_all(writers).await;
    });
    print(&report.lock().expect("no panic"));
    Ok(())
}

fn print(report: &Report) {
    println!("\n{}", serde_json::to_string(report).expect("text"));
}

/// Writes one row again and again.
struct Writer<'a> {
    settings: &'a Settings,
    name: String,
    random: Random,
    client: Option<Client>,
    /// Which of the [`POINTS`] the present transaction stood still at.
    stood_at: Option<&'static str>,
}

/// What a writer holds while it writes.
enum Held {
    Guard(Guard),
    /// Something in the database, since then.
    Since(Instant),
}

impl Held {
    /// Whether the hold is lost, or would be by its lease.
    fn is_late(&self) -> bool {
        match self {
            Self::Guard(guard) => guard.check().is_err(),
            Self::Since(at) => at.elapsed() > LEASE,
        }
    }

    fn token(&self) -> i64 {
        match self {
            Self::Guard(guard) => guard.token().to_i64(),
            Self::Since(_) => 0,
        }
    }
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

type Argument<'a> = (&'a (dyn ToSql + Sync), Type);

impl Writer<'_> {
    async fn run(
        mut self,
        locks: &Locks,
        ends: &AtomicBool,
        record: impl Fn(String, Duration, Option<&str>),
    ) {
        while !ends.load(Ordering::Relaxed) {
            let asked = Instant::now();
            // Both fail after a stop.
            let Ok(client) = self.connected().await else {
                sleep(RETRY).await;
                continue;
            };
            let Ok(Some(held)) = self.acquire(&client, locks, ends).await else {
                // The session may have ended, and rolls back.
                let _ = client.batch_execute("ROLLBACK").await;
                self.client = Some(client).filter(|client| !client.is_closed());
                sleep(RETRY).await;
                continue;
            };
            let waited = asked.elapsed();

            let written = self.write(&client, &held).await;
            let late = if held.is_late() { "late " } else { "" };
            let point = self.stood_at.take();
            match written {
                Ok(Written::Committed) => record(format!("{late}committed"), waited, point),
                Ok(Written::GivenUp) => record(format!("{late}{GIVEN_UP}"), waited, point),
                Err(error) => {
                    let state = error.code().map_or("connection", |code| code.code());
                    record(format!("{late}{state}"), waited, point);
                    // As above.
                    let _ = client.batch_execute("ROLLBACK").await;
                }
            }
            self.release(&client, held).await;
            self.client = Some(client).filter(|client| !client.is_closed());
        }
    }

    async fn connected(&mut self) -> Result<Client> {
        if let Some(client) = self.client.take() {
            return Ok(client);
        }
        let database = self.random.chosen(&self.settings.databases);
        let (client, connection) = tokio_postgres::connect(database, NoTls).await?;
        tokio::spawn(connection);
        if self.settings.protection == Protection::SessionLock {
            // A client may be stopped between its transactions too.
            let limit = format!("SET idle_session_timeout = {}", LEASE.as_millis());
            client.batch_execute(&limit).await?;
        }
        Ok(client)
    }

    /// Waits for what excludes other writers; `None` if the writers end first.
    async fn acquire(
        &mut self,
        client: &Client,
        locks: &Locks,
        ends: &AtomicBool,
    ) -> Result<Option<Held>> {
        let protection = self.settings.protection;
        if protection.has_guard() {
            let guard = locks.mutex(&self.name).lease(LEASE).acquire().await?;
            return Ok(Some(Held::Guard(guard)));
        }

        let name = self.name.clone();
        let name: Argument<'_> = (&name, Type::TEXT);
        match protection {
            Protection::TransactionLock => {
                self.begin(client).await?;
                let lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";
                client.query_typed(lock, &[name]).await?;
            }
            Protection::SessionLock => {
                let lock = "SELECT pg_advisory_lock(hashtextextended($1, 0))";
                client.query_typed(lock, &[name]).await?;
            }
            _ => {
                let is_over = "(owner IS NULL OR ends < clock_timestamp())";
                while !self.changes_lease(client, &lease_of_own(), is_over).await? {
                    if ends.load(Ordering::Relaxed) {
                        return Ok(None);
                    }
                    sleep(RETRY).await;
                }
            }
        }
        Ok(Some(Held::Since(Instant::now())))
    }

    async fn release(&self, client: &Client, held: Held) {
        let name: Argument<'_> = (&self.name, Type::TEXT);
        let released = match (held, self.settings.protection) {
            // The error of a lost hold, which the outcome has already.
            (Held::Guard(guard), _) => return drop(guard.release().await),
            (_, Protection::LeaseRow) => {
                let released = self.changes_lease(client, "owner = NULL", &is_own()).await;
                released.map(drop)
            }
            (_, Protection::SessionLock) => {
                let unlock = "SELECT pg_advisory_unlock(hashtextextended($1, 0))";
                client.query_typed(unlock, &[name]).await.map(drop)
            }
            _ => Ok(()),
        };
        // The session has ended, and its lock with it, or the lease ends.
        let _ = released;
    }

    /// Changes the lease of the row if a condition is met; returns whether it is.
    async fn changes_lease(
        &self,
        client: &Client,
        change: &str,
        condition: &str,
    ) -> Result<bool, tokio_postgres::Error> {
        let update =
            format!("UPDATE lease SET {change} WHERE name = $1 AND {condition} RETURNING 1");
        let rows = client
            .query_typed(&update, &[(&self.name, Type::TEXT)])
            .await?;
        Ok(!rows.is_empty())
    }

    async fn begin(&mut self, client: &Client) -> Result<(), tokio_postgres::Error> {
        let level = self.random.chosen(&self.settings.levels);
        // What the check does by itself. The plain comparison goes without, as it is usual.
        let limit = match self.settings.protection {
            Protection::Check | Protection::ComparedToken => String::new(),
            _ => format!(
                "; SET LOCAL idle_in_transaction_session_timeout = {}",
                LEASE.as_millis()
            ),
        };
        let begin = format!("BEGIN ISOLATION LEVEL {level}{limit}");
        client.batch_execute(&begin).await
    }

    /// Reads the number of the row, and writes the next one.
    async fn write(
        &mut self,
        client: &Client,
        held: &Held,
    ) -> Result<Written, tokio_postgres::Error> {
        let slow = *self.random.chosen(&STEPS);
        let name = self.name.clone();
        let name: Argument<'_> = (&name, Type::TEXT);
        let token: Argument<'_> = (&held.token(), Type::INT8);
        if self.settings.protection == Protection::ComparedToken {
            let raise = "UPDATE cell SET token = greatest(token, $2) WHERE name = $1";
            client
                .query_typed(raise, &[name.clone(), token.clone()])
                .await?;
        }

        if self.settings.protection != Protection::TransactionLock {
            self.begin(client).await?;
        }
        self.pause(client, Before::Check, slow).await?;
        if !self.is_allowed(client, held).await? {
            client.batch_execute("ROLLBACK").await?;
            return Ok(Written::GivenUp);
        }
        self.pause(client, Before::Read, slow).await?;
        let read = "SELECT value FROM cell WHERE name = $1";
        let row = client.query_typed(read, from_ref(&name)).await?.remove(0);
        let value: i64 = row.get(0);

        self.pause(client, Before::Write, slow).await?;
        let write = "UPDATE cell SET value = $2, token = greatest(token, $3) WHERE name = $1";
        let next: Argument<'_> = (&(value + 1), Type::INT8);
        client
            .query_typed(write, &[name.clone(), next, token.clone()])
            .await?;
        let count = "INSERT INTO written VALUES ($1, $2)";
        client.query_typed(count, &[name, token]).await?;
        self.pause(client, Before::Commit, slow).await?;
        client.batch_execute("COMMIT").await?;
        Ok(Written::Committed)
    }

    /// Whether the grant is still there, by what protects the row.
    async fn is_allowed(
        &mut self,
        client: &Client,
        held: &Held,
    ) -> Result<bool, tokio_postgres::Error> {
        let name: Argument<'_> = (&self.name, Type::TEXT);
        let largest = match self.settings.protection {
            Protection::Check => return self.check(client, held).await,
            Protection::ComparedToken => "SELECT token FROM cell WHERE name = $1",
            Protection::FenceRow => "SELECT token FROM cell WHERE name = $1 FOR UPDATE",
            Protection::LeaseRow => {
                let is_held = format!("{} AND ends > clock_timestamp()", is_own());
                return self.changes_lease(client, &lease_of_own(), &is_held).await;
            }
            Protection::TransactionLock | Protection::SessionLock => return Ok(true),
        };
        let row = client.query_typed(largest, &[name]).await?.remove(0);
        Ok(row.get::<_, i64>(0) <= held.token())
    }

    async fn check(&mut self, client: &Client, held: &Held) -> Result<bool, tokio_postgres::Error> {
        // The guard may be lost by now: then it binds nothing.
        let Held::Guard(guard) = held else {
            return Ok(false);
        };
        let Ok(binds) = guard.check_binds() else {
            return Ok(false);
        };
        // Without the limit, a session that is stopped is ended by the next holder alone.
        let remaining = Some(binds.remaining_ms).filter(|_| self.random.below(2) == 0);
        let arguments: [Argument<'_>; 4] = [
            (&binds.name, Type::TEXT),
            (&binds.token, Type::INT8),
            (&binds.claim, Type::TEXT),
            (&remaining, Type::INT8),
        ];
        client.query_typed(&binds.statement, &arguments).await?;
        Ok(true)
    }

    /// Before the slow one of the steps, stands still for a moment: in the client, in a statement, or
    /// while the server sends.
    async fn pause(
        &mut self,
        client: &Client,
        step: Before,
        slow: Before,
    ) -> Result<(), tokio_postgres::Error> {
        if step != slow {
            return Ok(());
        }
        let begun = Instant::now();
        let (point, paused) = match self.random.below(24) {
            0..12 => {
                sleep(PAUSE).await;
                let is_last = step == Before::Commit;
                (
                    if is_last {
                        BEFORE_COMMIT
                    } else {
                        BETWEEN_STATEMENTS
                    },
                    Ok(()),
                )
            }
            12..23 => (
                IN_STATEMENT,
                client.batch_execute("SELECT pg_sleep(0.05)").await,
            ),
            _ => {
                // More than the buffers between the server and a stopped client keep.
                let large = "SELECT repeat('x', 1000000) FROM generate_series(1, 24)";
                (SENDING, client.query_typed(large, &[]).await.map(drop))
            }
        };
        self.stood_at = (begun.elapsed() > LEASE).then_some(point);
        paused
    }
}

/// The condition that this process has the lease of a row.
fn is_own() -> String {
    format!("owner = {}", std::process::id())
}

/// The change that begins the lease of this process.
fn lease_of_own() -> String {
    let millis = LEASE.as_millis();
    format!(
        "{}, ends = clock_timestamp() + interval '{millis} ms'",
        is_own()
    )
}
