//! Accepts connections and serves each one.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::connections::{Connections, Place};
use super::{Site, routes};

/// Serves connections. Returns never.
pub(super) async fn run(listener: TcpListener, site: Arc<Site>) -> Infallible {
    let connections = Arc::new(Connections::default());
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                connections.spawn(peer.ip(), |place| {
                    connection(stream, Arc::clone(&site), place)
                });
            }
            // The process is out of descriptors, or the client has gone.
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves the one request of a connection.
async fn connection(stream: TcpStream, site: Arc<Site>, place: Place) {
    if let Err(error) = set_tcp_user_timeout(&stream, WRITE_MAX_MILLIS) {
        tracing::debug!(%error, "cannot limit how long a reply may be sent");
    }
    let place = Arc::new(place);
    let service = service_fn(move |request| {
        place.note_request(routes::activity_of(&request));
        let site = Arc::clone(&site);
        let place = Arc::clone(&place);
        async move { Ok::<_, Infallible>(routes::reply(site, request, &place).await) }
    });

    // A connection that waits for its next request would look like one that never sends a request.
    let served = Builder::new()
        .keep_alive(false)
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

/// How long a client may take to send the head of a request.
const HEADER_MAX: Duration = Duration::from_secs(5);
/// For how long a client may read nothing of a reply. A proxy of a slow network buffers less.
const WRITE_MAX_MILLIS: u32 = 30_000;
/// The most bytes of a request that are kept.
const BUFFER_MAX: usize = 64 * 1024;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
