//! Why no server accepts a connection.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::Error;
use crate::stores::url::{Host, io_reason};

/// Returns the error of an ensemble that cannot be reached, with a reason for each server.
///
/// The client library reports only that it has no connection. So this connects to each server
/// once more.
pub(super) async fn unreachable(servers: &[Host]) -> Error {
    let reasons = join_all(servers.iter().map(reason)).await;
    Error::unavailable(format!("no server can be reached: {}", reasons.join(", ")))
}

async fn reason(server: &Host) -> String {
    let connecting = TcpStream::connect((server.name.as_str(), server.port));
    match timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(Err(error)) => format!("{server}: {}", io_reason(&error)),
        Ok(Ok(_)) => format!("{server}: it accepts connections, but no session"),
        Err(_elapsed) => format!("{server}: no reply within {CONNECT_TIMEOUT:?}"),
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
