//! A deposit whose transaction the database rejects if the lock was lost.

use std::time::Duration;

use anyhow::{Result, bail};
use leasehold::{FencingToken, fence};
use leasehold_examples::settings::setting;
use sqlx::PgPool;
use tokio::io::{AsyncReadExt, stdin};

/// How long the store waits for a holder that does not renew.
const LEASE: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<()> {
    let locks = leasehold::open(&setting::<String>("LEASEHOLD_STORE")?).await?;
    let pool = PgPool::connect(&setting::<String>("DATABASE_URL")?).await?;
    let account: i32 = setting("ACCOUNT")?;

    let lock = locks.mutex(format!("accounts/{account}")).lease(LEASE);
    let guard = lock.acquire().await?;
    println!("granted");
    let amount = long_calculation().await?;
    let balance = deposit(&pool, guard.fencing_token()?, account, amount).await?;
    drop(guard);

    let Some(balance) = balance else {
        bail!("rejected: a later holder has written");
    };
    println!("balance {balance}");
    Ok(())
}

/// Seals and writes in one transaction. Returns `None` if a later holder has sealed.
async fn deposit(
    pool: &PgPool,
    token: FencingToken,
    account: i32,
    amount: i64,
) -> Result<Option<i64>> {
    let mut transaction = pool.begin().await?;
    let sealed = sqlx::query(fence::sql::SEAL)
        .bind(format!("accounts/{account}"))
        .bind(token.token().to_i64())
        .bind(token.claim().to_string())
        .fetch_optional(&mut *transaction)
        .await?;
    if sealed.is_none() {
        return Ok(None); // dropping the transaction rolls it back
    }

    let write = "UPDATE accounts SET balance = balance + $2 WHERE id = $1 RETURNING balance";
    let balance = sqlx::query_scalar(write)
        .bind(account)
        .bind(amount)
        .fetch_one(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(Some(balance))
}

/// The work that takes longer than expected: the amount comes from standard input.
async fn long_calculation() -> Result<i64> {
    let mut text = String::new();
    stdin().read_to_string(&mut text).await?;
    Ok(text.trim().parse()?)
}
