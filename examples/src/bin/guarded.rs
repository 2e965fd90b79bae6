//! A web service that migrates its database first, and then runs each request under a lock.
//!
//! Tower repeats the acquire while the store is unavailable, and limits the time for all attempts.

use std::time::Duration;

use anyhow::Result;
use axum::error_handling::HandleErrorLayer;
use axum::extract::Extension;
use axum::http::Request;
use axum::routing::post;
use axum::{Router, serve};
use leasehold::{FencingToken, Guard, Lock, Locks};
use leasehold_examples::failure::Failure;
use leasehold_examples::lock_layer::LockLayer;
use leasehold_examples::settings::setting;
use leasehold_examples::signals::terminated;
use tokio::net::TcpListener;
use tokio::time::{Sleep, sleep};
use tower::retry::Policy;
use tower::{BoxError, ServiceBuilder, ServiceExt};

/// How long a request waits for its lock.
const WAIT: Duration = Duration::from_secs(2);
/// The pause before another attempt.
const PAUSE: Duration = Duration::from_millis(200);

#[tokio::main]
async fn main() -> Result<()> {
    let locks = leasehold::open_lazy(&setting::<String>("LEASEHOLD_STORE")?)?;
    let timeout = Duration::from_secs(setting("START_SECONDS")?);

    let guard = acquire_in_time(locks.mutex("migration"), timeout).await?;
    println!("migrated under token {}", guard.token());
    guard.release().await?;

    let listener = TcpListener::bind(setting::<String>("LISTEN")?).await?;
    println!("listening on {}", listener.local_addr()?);
    serve(listener, routes(locks))
        .with_graceful_shutdown(terminated())
        .await?;
    Ok(())
}

/// The timeout may drop the acquire at any time: it leaves no entry in the queue.
async fn acquire_in_time(lock: Lock, timeout: Duration) -> Result<Guard> {
    let service = ServiceBuilder::new()
        .timeout(timeout)
        .retry(WhileUnavailable)
        .service_fn(|lock: Lock| lock.acquire());

    let acquired = service.oneshot(lock).await;
    acquired.map_err(anyhow::Error::from_boxed)
}

/// Repeats a call that may succeed later.
#[derive(Clone)]
struct WhileUnavailable;

impl<T> Policy<Lock, T, leasehold::Error> for WhileUnavailable {
    type Future = Sleep;

    fn retry(
        &mut self,
        _lock: &mut Lock,
        result: &mut Result<T, leasehold::Error>,
    ) -> Option<Sleep> {
        let error = result.as_ref().err()?;
        error.can_retry().then(|| sleep(PAUSE))
    }

    fn clone_request(&mut self, lock: &Lock) -> Option<Lock> {
        Some(lock.clone())
    }
}

/// Each path has its own lock.
fn routes(locks: Locks) -> Router {
    let lock_of = move |request: &Request<_>| locks.mutex(request.uri().path());
    let under_lock = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(async |error: BoxError| {
            Failure::from(error)
        }))
        .layer(LockLayer::new(lock_of, WAIT));

    Router::new()
        .route("/reports/{name}", post(report))
        .layer(under_lock)
}

/// A handler under a lock. A database would receive the token with each write.
async fn report(Extension(token): Extension<FencingToken>) -> String {
    token.token().to_string()
}
