//! The signal that ends a service.

use std::future;

use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGTERM, which systemd and Kubernetes send to end a service.
pub async fn terminated() {
    match signal(SignalKind::terminate()) {
        Ok(mut signal) => {
            signal.recv().await;
        }
        Err(error) => {
            eprintln!("SIGTERM ends this process at once: {error}");
            future::pending::<()>().await;
        }
    }
}
