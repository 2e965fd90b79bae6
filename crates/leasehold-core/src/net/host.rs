//! Servers by their names, and why one cannot be reached.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;
use std::{fmt, io};

use futures_util::future::join_all;
use rustix::net::sockopt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::lookups::Lookups;
use crate::{Error, Result};

/// How long a name has to be resolved: a resolver waits five seconds for a dead name server, and
/// then asks the next one.
const RESOLVE_MAX: Duration = Duration::from_secs(12);
/// How long one address of a host has to accept a connection.
pub(super) const ATTEMPT_MAX: Duration = Duration::from_secs(1);
/// After this silence the kernel probes a connection, three times at this interval.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// The kernel closes a connection whose data is not acknowledged for this time.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(15);

/// One server; an IPv6 address has no brackets here.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Host {
    pub name: String,
    pub port: u16,
}

impl Host {
    /// Whether the server is on this machine.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let address = self.name.parse::<IpAddr>();
        address.map_or(self.name == "localhost", |address| address.is_loopback())
    }

    /// Returns the addresses of the server, or the error of resolving its name.
    ///
    /// # Errors
    /// [`is_unavailable`](Error::is_unavailable) if there is no thread to resolve the name.
    pub async fn addresses(&self) -> Result<io::Result<Vec<SocketAddr>>> {
        if let Ok(address) = self.name.parse() {
            return Ok(Ok(vec![SocketAddr::new(address, self.port)]));
        }
        let Self { name, port } = self.clone();
        let resolving = move || (name, port).to_socket_addrs().map(Iterator::collect);
        let found = LOOKUPS.of(&self.name, self.port, resolving);
        Ok(found.await?.addresses())
    }

    /// Resolves the name, so that connecting within the next second need not wait for that.
    ///
    /// # Errors
    /// [`is_unavailable`](Error::is_unavailable) if that takes too long. A name that is not found
    /// is an error of connecting.
    pub async fn resolve(&self) -> Result<()> {
        let resolving = timeout(RESOLVE_MAX, self.addresses());
        let resolved = resolving.await.map_err(|_elapsed| {
            let name = &self.name;
            Error::unavailable(format!("{name} was not resolved within {RESOLVE_MAX:?}"))
                .help("check the name servers in /etc/resolv.conf")
        })?;
        resolved.map(drop)
    }

    /// Connects to the server, with the options by which a lost one is noticed.
    pub async fn connect(&self) -> Result<TcpStream> {
        let failed = |error| self.unreachable(error);
        let addresses = self.addresses().await?.map_err(failed)?;
        let stream = open_tcp(addresses).await.map_err(failed)?;
        tune(&stream).map_err(failed)?;
        Ok(stream)
    }

    pub(super) fn unreachable(&self, error: io::Error) -> Error {
        let error = Error::exhausted(error, format_args!("the server {self} cannot be reached"));
        if error.hint().is_some() {
            return error;
        }
        error.help("check host and port, and that the server runs")
    }
}

static LOOKUPS: Lookups = Lookups::new();

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

/// What the errors of connecting say about a service.
#[derive(Debug)]
pub struct Help {
    /// Begins the URLs without TLS.
    pub plain_scheme: &'static str,
    /// How a URL states another name for the certificate; empty if it cannot.
    pub server_name: &'static str,
    /// What to check if a Unix socket cannot be opened.
    pub socket: &'static str,
}

/// Tries each address of the host for a second.
///
/// The kernel repeats a lost SYN after one second, then after three and seven. A new attempt sends
/// its own SYN at once.
async fn open_tcp(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");

    for address in addresses {
        match timeout(ATTEMPT_MAX, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }

    Err(last)
}

/// Sets the options with which a lost peer is detected, and small requests are sent at once.
fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    limit_unacknowledged(stream)
}

#[cfg(target_os = "linux")]
fn limit_unacknowledged(stream: &TcpStream) -> io::Result<()> {
    let limit = u32::try_from(UNACKNOWLEDGED_MAX.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, limit)?;
    Ok(())
}

/// Other systems do not have this option. A lost peer is then noticed by the heartbeat.
#[cfg(not(target_os = "linux"))]
fn limit_unacknowledged(_stream: &TcpStream) -> io::Result<()> {
    Ok(())
}

/// Returns the error for servers of which none can be used, with the reason of each. `accepts` is
/// the reason of a server that accepts connections.
///
/// A client library may report only that it has no connection. So this connects to each server
/// once more.
pub async fn no_server(hosts: &[Host], accepts: &str) -> Error {
    let reasons = join_all(hosts.iter().map(|host| reason(host, accepts))).await;
    Error::unavailable(format!("no server can be reached: {}", reasons.join(", ")))
}

async fn reason(host: &Host, accepts: &str) -> String {
    let connecting = async {
        let addresses = host.addresses().await.map_err(io::Error::other)??;
        TcpStream::connect(&*addresses).await
    };
    match timeout(ATTEMPT_MAX, connecting).await {
        Ok(Err(error)) if !has_closed(&error) => format!("{host}: {}", io_reason(&error)),
        Ok(_) => format!("{host}: {accepts}"),
        Err(_elapsed) => format!("{host}: no reply within {ATTEMPT_MAX:?}"),
    }
}

/// Formats the reason of an I/O error without its number.
pub fn io_reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((reason, _)) => reason.to_lowercase(),
        None => text,
    }
}

/// Whether the peer has closed the connection.
pub(super) fn has_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}
