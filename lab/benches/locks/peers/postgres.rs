//! PostgreSQL without leasehold: two bare updates, and an advisory lock of a session. And transactions of
//! two updates, alone, with `leasehold.check`, and with a row lock.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use leasehold::Guard;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Statement};

use super::libraries::Library;

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

/// `pg_advisory_lock` by one session, which a pooler takes away: no lease, no token, and no commit.
pub(super) struct SessionLocks {
    client: Client,
    lock: Statement,
    unlock: Statement,
}

impl SessionLocks {
    pub(super) async fn connect(url: &str) -> Result<Self> {
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
    type Held = String;

    async fn acquire(&self, name: &str) -> Result<String> {
        self.client.query(&self.lock, &[&name]).await?;
        Ok(name.to_owned())
    }

    async fn release(&self, name: String) -> Result<()> {
        self.client.query(&self.unlock, &[&name]).await?;
        Ok(())
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
