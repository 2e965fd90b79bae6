//! A web service with a lock for each order, and a clean shutdown.
//!
//! All replicas together send one charge of an order at a time to the payment service.

use std::time::Duration;

use anyhow::Result;
use axum::extract::{Path, State};
use axum::routing::post;
use axum::{Router, serve};
use leasehold::{FencingToken, Locks};
use leasehold_examples::failure::Failure;
use leasehold_examples::settings::setting;
use leasehold_examples::signals::terminated;
use tokio::net::TcpListener;

/// How long a request waits for the lock of its order.
const WAIT: Duration = Duration::from_secs(2);

#[derive(Clone)]
struct Orders {
    locks: Locks,
    payments: String,
    client: reqwest::Client,
}

#[tokio::main]
async fn main() -> Result<()> {
    let orders = Orders {
        locks: leasehold::open(&setting::<String>("LEASEHOLD_STORE")?).await?,
        payments: setting("PAYMENTS")?,
        client: reqwest::Client::new(),
    };
    let routes = Router::new()
        .route("/orders/{order}/charge", post(charge))
        .with_state(orders);

    let listener = TcpListener::bind(setting::<String>("LISTEN")?).await?;
    println!("listening on {}", listener.local_addr()?);
    serve(listener, routes)
        .with_graceful_shutdown(terminated())
        .await?;
    Ok(())
}

async fn charge(State(orders): State<Orders>, Path(order): Path<u64>) -> Result<String, Failure> {
    let lock = orders.locks.mutex(format!("orders/{order}"));
    let guard = lock.try_acquire_for(WAIT).await??;

    let token = guard.fencing_token()?;
    let charged = guard.while_held(orders.send_charge(order, token)).await?;
    drop(guard); // released in the background, so the client does not wait for it
    Ok(charged?)
}

impl Orders {
    /// Sends the token too, so that the payment service can reject a late holder.
    async fn send_charge(&self, order: u64, token: FencingToken) -> Result<String> {
        let url = format!("{}/charges/{order}/{}", self.payments, token.token());
        let reply = self.client.post(url).send().await?;
        Ok(reply.error_for_status()?.text().await?)
    }
}
