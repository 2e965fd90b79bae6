//! A web service whose late commits fail: it checks the lock in the transaction that writes.
//!
//! The lock is in the database of the orders. The next holder is granted when the transaction has ended,
//! even if this process stands still in the middle of it.

use std::time::Duration;

use anyhow::Result;
use axum::extract::{Path, State};
use axum::routing::post;
use axum::{Router, serve};
use leasehold::{Guard, Locks};
use leasehold_examples::failure::Failure;
use leasehold_examples::settings::setting;
use leasehold_examples::signals::terminated;
use sqlx::PgPool;
use tokio::net::TcpListener;

/// How long a request waits for the lock of its order.
const WAIT: Duration = Duration::from_secs(10);
/// How long a transaction may stand still before the next holder takes its place.
const LEASE: Duration = Duration::from_secs(2);

#[derive(Clone)]
struct Orders {
    locks: Locks,
    pool: PgPool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let orders = Orders {
        locks: leasehold::open(&setting::<String>("LEASEHOLD_STORE")?).await?,
        pool: PgPool::connect(&setting::<String>("DATABASE_URL")?).await?,
    };
    let routes = Router::new()
        .route("/orders/{order}/add/{amount}", post(add))
        .with_state(orders);

    let listener = TcpListener::bind(setting::<String>("LISTEN")?).await?;
    println!("listening on {}", listener.local_addr()?);
    serve(listener, routes)
        .with_graceful_shutdown(terminated())
        .await?;
    Ok(())
}

async fn add(
    State(orders): State<Orders>,
    Path((order, amount)): Path<(i32, i64)>,
) -> Result<String, Failure> {
    let lock = orders.locks.mutex(format!("orders/{order}")).lease(LEASE);
    let guard = lock.try_acquire_for(WAIT).await??;
    let total = orders.write_total(&guard, order, amount).await?;
    Ok(total.to_string())
}

impl Orders {
    /// Adds to the total of an order, as a client with a cache would: it reads, and then writes.
    async fn write_total(&self, guard: &Guard, order: i32, amount: i64) -> Result<i64> {
        let mut transaction = self.pool.begin().await?;
        let binds = guard.check_binds()?;
        sqlx::query(&binds.statement)
            .bind(&binds.name)
            .bind(binds.token)
            .bind(&binds.claim)
            .bind(binds.remaining_ms)
            .execute(&mut *transaction)
            .await?;

        let total: i64 = sqlx::query_scalar("SELECT total FROM orders WHERE id = $1")
            .bind(order)
            .fetch_one(&mut *transaction)
            .await?;
        sqlx::query("UPDATE orders SET total = $2 WHERE id = $1")
            .bind(order)
            .bind(total + amount)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(total + amount)
    }
}
