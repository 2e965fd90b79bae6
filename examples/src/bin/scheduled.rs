//! A job that runs once in each period, in any number of replicas.
//!
//! The store records which periods are done. So the clocks of the replicas may differ, and if a
//! replica crashes, another one runs its job. The transaction of the job records the period too,
//! because a replica may crash after its commit, and before the store has the record.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use leasehold::{FencingToken, Locks, fence};
use leasehold_examples::settings::setting;
use leasehold_examples::signals::terminated;
use sqlx::PgPool;
use tokio::time::sleep;

/// The name of the lock and of the fenced resource.
const REPORT: &str = "report";
/// The pause after an error.
const PAUSE: Duration = Duration::from_secs(1);

struct Schedule {
    locks: Locks,
    pool: PgPool,
    period: Duration,
    replica: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let schedule = Schedule {
        locks: leasehold::open(&setting::<String>("LEASEHOLD_STORE")?).await?,
        pool: PgPool::connect(&setting::<String>("DATABASE_URL")?).await?,
        period: Duration::from_secs(setting("PERIOD_SECONDS")?),
        replica: setting("REPLICA")?,
    };

    tokio::select! {
        () = schedule.run() => {}
        () = terminated() => {} // drops the job, whose transaction is then rolled back
    }
    Ok(())
}

impl Schedule {
    async fn run(&self) {
        loop {
            let period = self.next_period().await;
            while let Err(error) = self.run_once(period).await {
                eprintln!("period {period}: {error:#}");
                sleep(PAUSE).await;
            }
        }
    }

    /// Waits until the next period begins, and returns its number.
    async fn next_period(&self) -> i64 {
        let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let number = since_1970.as_secs() / self.period.as_secs() + 1;

        let begin = Duration::from_secs(number * self.period.as_secs());
        sleep(begin.saturating_sub(since_1970)).await;
        number.cast_signed()
    }

    /// Runs the job of a period, unless a replica has run it.
    async fn run_once(&self, period: i64) -> Result<()> {
        let job = self.locks.once(REPORT).id(period.to_string());
        match job.acquire().await? {
            Ok(guard) => {
                let report = self.report(period, guard.fencing_token()?);
                guard.while_held(report).await??;
                guard.complete().await?;
                println!("period {period}");
            }
            Err(done) => println!("{done}"),
        }
        Ok(())
    }

    /// Writes the report in a transaction, unless a replica has written it.
    async fn report(&self, period: i64, token: FencingToken) -> Result<()> {
        let mut transaction = self.pool.begin().await?;
        let sealed = sqlx::query(fence::sql::SEAL)
            .bind(REPORT)
            .bind(token.token().to_i64())
            .bind(token.claim().to_string())
            .fetch_optional(&mut *transaction)
            .await?;
        anyhow::ensure!(sealed.is_some(), "a later holder has sealed");

        let done = sqlx::query("SELECT 1 FROM reports WHERE period >= $1 LIMIT 1")
            .bind(period)
            .fetch_optional(&mut *transaction)
            .await?;
        if done.is_some() {
            return Ok(());
        }

        sqlx::query("INSERT INTO reports (period, replica) VALUES ($1, $2)")
            .bind(period)
            .bind(&self.replica)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(())
    }
}
