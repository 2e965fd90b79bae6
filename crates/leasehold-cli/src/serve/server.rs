//! Accepts connections and serves each one.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use super::routes::{self, Site};

/// Serves connections. Returns never.
pub(super) async fn run(listener: TcpListener, site: Arc<Site>) -> Infallible {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = Arc::clone(&places).acquire_owned().await;
        let place = place.expect("the semaphore is never closed");

        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(connection(stream, Arc::clone(&site), place));
            }
            // The process is out of descriptors, or the client has gone.
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, site: Arc<Site>, _place: OwnedSemaphorePermit) {
    let service = service_fn(move |request| {
        let site = Arc::clone(&site);
        async move { Ok::<_, Infallible>(routes::reply(site, request).await) }
    });

    let served = Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_MAX)
        .max_buf_size(BUFFER_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    // The client has gone, or does not speak HTTP.
    if let Err(error) = served {
        tracing::debug!(%error, "a connection has failed");
    }
}

/// The most connections at the same time. Further ones wait.
const CONNECTIONS_MAX: usize = 256;
/// How long a client may take to send the head of a request, or to send the next one.
const HEADER_MAX: Duration = Duration::from_secs(30);
/// The most bytes of a request that are kept.
const BUFFER_MAX: usize = 64 * 1024;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
