//! PostgreSQL without leasehold: two bare updates, the functions of leasehold's schema, a lease in a
//! row, and advisory locks of a session. And transactions of two updates, alone, with
//! `leasehold.check`, and with a row lock.

use std::future::poll_fn;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use leasehold::Guard;
use sqlx::postgres::{PgAdvisoryLock, PgPool, PgPoolOptions};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::sleep;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, NoTls, Statement};
use uuid::Uuid;

use super::libraries::Library;
use super::{Peer, tasks};
use crate::workload::Workload;

/// The pause of a lease in a row before it is tried again.
const PAUSE: Duration = Duration::from_millis(10);
/// More sessions than tasks contend in a process.
const SESSIONS_MAX: u32 = 20;
const CHANNEL: &str = "hop";

/// The limit: a row that is updated twice. It has no queue and no lease, and nobody may contend.
pub(super) struct Updates {
    client: Client,
    update: Statement,
}

impl Updates {
    pub(super) async fn connect(url: &str) -> Result<Self> {
        let client = connect(url).await?;
        // Several peers may make it at once.
        let table = "BEGIN; SELECT pg_advisory_xact_lock(1); \
            CREATE TABLE IF NOT EXISTS bare (name text PRIMARY KEY, value bigint); \
            INSERT INTO bare VALUES ('a', 0), ('b', 0) ON CONFLICT DO NOTHING; COMMIT";
        client.batch_execute(table).await?;
        let update = "UPDATE bare SET value = value + 1 WHERE name = $1 RETURNING value";
        let update = client.prepare(update).await?;
        Ok(Self { client, update })
    }

    async fn update(&self) -> Result<()> {
        let row = self.client.query_opt(&self.update, &[&"a"]).await?;
        row.context("the row is there").map(drop)
    }
}

impl Library for Updates {
    type Held = ();

    async fn acquire(&self, _: &str) -> Result<()> {
        self.update().await
    }

    async fn release(&self, (): ()) -> Result<()> {
        self.update().await
    }
}

/// The two functions that the library of leasehold calls, called by themselves.
pub(super) struct Functions {
    client: Client,
    enter: Statement,
    leave: Statement,
}

impl Functions {
    pub(super) async fn connect(url: &str) -> Result<Self> {
        // It makes the schema.
        leasehold::open(url).await?;
        let client = connect(url).await?;
        let enter = "SELECT standing FROM leasehold.enter_1($1, 'Q', $2, 1, 1, 30000, 0, $2, 1, \
            NULL, NULL, NULL, 0, 'x', 0, $3, '{}')";
        let enter = client.prepare(enter).await?;
        let leave = client
            .prepare("SELECT leasehold.leave_1($1, $2, $2)")
            .await?;
        Ok(Self {
            client,
            enter,
            leave,
        })
    }
}

impl Library for Functions {
    type Held = (String, Uuid);

    async fn acquire(&self, name: &str) -> Result<(String, Uuid)> {
        let claim = Uuid::new_v4();
        let values: [&(dyn ToSql + Sync); 3] = [&name, &claim, &i64::MAX];
        self.client.query(&self.enter, &values).await?;
        Ok((name.to_owned(), claim))
    }

    async fn release(&self, (name, claim): (String, Uuid)) -> Result<()> {
        self.client.query(&self.leave, &[&name, &claim]).await?;
        Ok(())
    }
}

/// A row with a lease, as many programs write it by hand: an upsert takes a lease that has expired,
/// waiters try again after a pause, and a delete compares the owner. It has neither a token nor a
/// queue.
pub(super) struct LeaseTable {
    client: Client,
    take: Statement,
    free: Statement,
}

impl LeaseTable {
    pub(super) async fn connect(url: &str) -> Result<Self> {
        let client = connect(url).await?;
        let table = "BEGIN; SELECT pg_advisory_xact_lock(1); CREATE TABLE IF NOT EXISTS leases \
            (name text PRIMARY KEY, owner uuid, until timestamptz); COMMIT";
        client.batch_execute(table).await?;
        let take = "INSERT INTO leases VALUES ($1, $2, now() + interval '30 s') \
            ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until \
            WHERE leases.until < now() RETURNING owner";
        let take = client.prepare(take).await?;
        let free = "DELETE FROM leases WHERE name = $1 AND owner = $2";
        let free = client.prepare(free).await?;
        Ok(Self { client, take, free })
    }
}

impl Library for LeaseTable {
    type Held = (String, Uuid);

    async fn acquire(&self, name: &str) -> Result<(String, Uuid)> {
        let owner = Uuid::new_v4();
        let values: [&(dyn ToSql + Sync); 2] = [&name, &owner];
        while self.client.query_opt(&self.take, &values).await?.is_none() {
            sleep(PAUSE).await;
        }
        Ok((name.to_owned(), owner))
    }

    async fn release(&self, (name, owner): (String, Uuid)) -> Result<()> {
        self.client.execute(&self.free, &[&name, &owner]).await?;
        Ok(())
    }
}

/// `pg_advisory_lock` by sessions, which a pooler takes away: no lease, no token, and no commit.
pub(super) struct SessionLocks {
    url: String,
    /// The sessions that hold nothing.
    idle: Mutex<Vec<Session>>,
}

/// A session, with its statements.
pub(super) struct Session {
    client: Client,
    lock: Statement,
    unlock: Statement,
}

impl SessionLocks {
    pub(super) async fn connect(url: &str) -> Result<Self> {
        let first = Session::connect(url).await?;
        Ok(Self {
            url: url.to_owned(),
            idle: Mutex::new(vec![first]),
        })
    }

    fn take_idle(&self) -> Option<Session> {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
    }
}

impl Session {
    async fn connect(url: &str) -> Result<Self> {
        let client = connect(url).await?;
        let [lock, unlock] = ["lock", "unlock"]
            .map(|verb| format!("SELECT pg_advisory_{verb}(hashtextextended($1, 0))"));
        let lock = client.prepare(&lock).await?;
        let unlock = client.prepare(&unlock).await?;
        Ok(Self {
            client,
            lock,
            unlock,
        })
    }
}

impl Library for SessionLocks {
    type Held = (String, Session);

    async fn acquire(&self, name: &str) -> Result<(String, Session)> {
        let session = match self.take_idle() {
            Some(session) => session,
            None => Session::connect(&self.url).await?,
        };
        session.client.query(&session.lock, &[&name]).await?;
        Ok((name.to_owned(), session))
    }

    async fn release(&self, (name, session): (String, Session)) -> Result<()> {
        session.client.query(&session.unlock, &[&name]).await?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(session);
        Ok(())
    }
}

/// sqlx's `PgAdvisoryLock`, which is `pg_advisory_lock` on a connection of its pool.
pub(super) struct Sqlx(PgPool);

impl Sqlx {
    pub(super) async fn connect(url: &str) -> Result<Self> {
        let options = PgPoolOptions::new().max_connections(SESSIONS_MAX);
        Ok(Self(options.connect(url).await?))
    }
}

impl Library for Sqlx {
    type Held = (PgAdvisoryLock, sqlx::pool::PoolConnection<sqlx::Postgres>);

    async fn acquire(&self, name: &str) -> Result<Self::Held> {
        let lock = PgAdvisoryLock::new(name);
        let connection = self.0.acquire().await?;
        let connection = lock.acquire(connection).await?.leak();
        Ok((lock, connection))
    }

    async fn release(&self, (lock, connection): Self::Held) -> Result<()> {
        lock.force_release(connection).await?;
        Ok(())
    }
}

/// The limit of a hand-over: a durable commit that notifies another session.
pub(super) struct Notifications {
    runtime: Runtime,
    client: Client,
    update: Statement,
    /// The moments at which notifications arrived.
    came: UnboundedReceiver<u64>,
}

impl Notifications {
    pub(super) fn connect(url: &str) -> Result<Self> {
        let runtime = tasks::runtime()?;
        let (arrived, came) = unbounded_channel();
        let (client, update) = runtime.block_on(async {
            let Updates { update: _, client } = Updates::connect(url).await?;
            drop(client);
            let (client, mut connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(async move {
                while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                    if matches!(message, AsyncMessage::Notification(_)) {
                        let _ = arrived.send(lab::now());
                    }
                }
            });
            let update = "WITH notified AS (SELECT pg_notify('hop', '')) UPDATE bare \
                SET value = value + 1 FROM notified WHERE name = 'a'";
            let update = client.prepare(update).await?;
            anyhow::Ok((client, update))
        })?;
        Ok(Self {
            runtime,
            client,
            update,
            came,
        })
    }
}

impl Peer for Notifications {
    fn run(&mut self, task: &Workload) -> Result<Option<Vec<u64>>> {
        let Self {
            runtime,
            client,
            update,
            came,
        } = self;
        runtime.block_on(async {
            let mut moments = Vec::new();
            match task {
                Workload::Subscribe => client.batch_execute(&format!("LISTEN {CHANNEL}")).await?,
                Workload::Receive { count } => {
                    for _ in 0..*count {
                        moments.push(came.recv().await.context("the connection has ended")?);
                    }
                }
                Workload::Publish { count, gap_micros } => {
                    for _ in 0..*count {
                        moments.push(lab::now());
                        client.execute(&*update, &[]).await?;
                        sleep(Duration::from_micros(*gap_micros)).await;
                    }
                }
                _ => return Ok(None),
            }
            Ok(Some(moments))
        })
    }
}

/// Transactions of two updates, one after the other.
pub(super) struct Transactions {
    updates: Updates,
    begin: String,
    /// What comes before the updates, and the hold that it is about.
    first: Option<(Statement, Option<Guard>)>,
}

impl Transactions {
    /// Takes what one transaction does as `LEVEL`, or `LEVEL, FIRST` with a statement before the
    /// updates.
    pub(super) async fn connect(kind: &str, url: &str) -> Result<Self> {
        let updates = Updates::connect(url).await?;
        let (level, first) = kind.split_once(", ").unwrap_or((kind, ""));
        let (first, guard) = match first {
            "" => (None, None),
            "checked" => {
                let locks = leasehold::open(url).await?;
                // A renewal would make the check fail above READ COMMITTED now and then.
                let lock = locks.mutex(kind).lease(Duration::from_secs(3_600));
                (
                    Some(leasehold::postgres::CHECK),
                    Some(lock.acquire().await?),
                )
            }
            "row locked" => (
                Some("SELECT value FROM bare WHERE name = 'b' FOR UPDATE"),
                None,
            ),
            other => bail!("{other} is not a statement"),
        };
        let first = match first {
            Some(first) => Some((updates.client.prepare(first).await?, guard)),
            None => None,
        };
        Ok(Self {
            updates,
            begin: format!("BEGIN ISOLATION LEVEL {level}"),
            first,
        })
    }
}

impl Library for Transactions {
    type Held = ();

    async fn acquire(&self, _: &str) -> Result<()> {
        let client = &self.updates.client;
        client.batch_execute(&self.begin).await?;
        match &self.first {
            Some((check, Some(guard))) => {
                let binds = guard.check_binds()?;
                let values: [&(dyn ToSql + Sync); 4] =
                    [&binds.name, &binds.token, &binds.claim, &binds.remaining_ms];
                client.query(check, &values).await?;
            }
            Some((statement, None)) => drop(client.query(statement, &[]).await?),
            None => {}
        }
        self.updates.update().await?;
        self.updates.update().await?;
        Ok(client.batch_execute("COMMIT").await?)
    }

    async fn release(&self, (): ()) -> Result<()> {
        Ok(())
    }
}

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // It ends with the client.
    tokio::spawn(connection);
    Ok(client)
}
