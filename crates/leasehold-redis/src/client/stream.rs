//! Sockets to a server: TCP, TLS and Unix.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::address::{Address, Target};
use super::tls::{self, Encrypted};
use leasehold_core::internal::{Host, simulation};
use leasehold_core::{Error, Result};

/// After this silence the kernel probes a connection, three times at this interval.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// The kernel closes a connection whose data is not acknowledged for this time.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(15);

/// How many of the first bytes of a server are kept.
const FIRST_BYTES_MAX: usize = 1024;

/// A connection to a server.
///
/// A server that refuses a client writes the reason and closes the connection. Then a write of this
/// client fails before the reason is read, so a failed write is left to the next read.
pub(crate) struct Stream {
    socket: Socket,
    /// Receives the first bytes of the server.
    first_bytes: Weak<Mutex<Vec<u8>>>,
}

enum Socket {
    Tcp(TcpStream),
    Tls(Box<Encrypted>),
    Unix(UnixStream),
    Simulated(simulation::SimulatedStream),
}

impl Stream {
    pub(crate) async fn connect(address: &Address) -> Result<Self> {
        let connected = Socket::connect(&address.target).await;
        let socket = connected.map_err(|error| {
            if address.is_announced && error.is_unavailable() {
                return error.help(ANNOUNCED_HELP);
            }
            error
        })?;
        Ok(Self {
            socket,
            first_bytes: Weak::new(),
        })
    }

    /// Returns where the first bytes of the server are kept while the value exists.
    pub(crate) fn first_bytes(&mut self) -> Arc<Mutex<Vec<u8>>> {
        let kept = Arc::default();
        self.first_bytes = Arc::downgrade(&kept);
        kept
    }
}

const ANNOUNCED_HELP: &str = "the sentinels or the nodes of the cluster announce this address; if \
     clients reach the server at another one, write address-map=ANNOUNCED=REACHED";

impl Socket {
    async fn connect(target: &Target) -> Result<Self> {
        match target {
            Target::Tcp { host, tls: None } => match simulation::connect(&host.name, host.port) {
                Some(connected) => connected
                    .map(Self::Simulated)
                    .map_err(|error| unreachable(host, error)),
                None => Ok(Self::Tcp(tcp(host).await?)),
            },
            Target::Tcp {
                host,
                tls: Some(tls),
            } => Ok(Self::Tls(Box::new(tls::connect(host, tls).await?))),
            Target::Socket(path) => {
                let stream = UnixStream::connect(path).await;
                stream.map(Self::Unix).map_err(|error| closed(error, path))
            }
        }
    }
}

pub(crate) async fn tcp(host: &Host) -> Result<TcpStream> {
    let failed = |error| unreachable(host, error);
    let addresses = host.addresses().await?.map_err(failed)?;
    let stream = open_tcp(addresses).await.map_err(failed)?;
    tune(&stream).map_err(failed)?;
    Ok(stream)
}

/// Tries each address of the host for a second.
///
/// The kernel repeats a lost SYN after one second, then after three and seven. A new attempt sends
/// its own SYN at once.
async fn open_tcp(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    const ATTEMPT_MAX: Duration = Duration::from_secs(1);
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

fn unreachable(host: &Host, error: io::Error) -> Error {
    Error::unavailable(format!("the server {host} cannot be reached: {error}"))
        .help("check host and port, and that the server runs")
        .caused_by(error)
}

fn closed(error: io::Error, path: &Path) -> Error {
    let what = format!("the socket {} cannot be opened: {error}", path.display());
    let kind = if error.kind() == io::ErrorKind::PermissionDenied {
        Error::denied(what)
    } else {
        Error::unavailable(what)
    };
    kind.help("check the path, and `unixsocketperm` of the server")
        .caused_by(error)
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

/// Whether the server has closed the connection, so that the next read ends too.
fn has_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

macro_rules! each {
    ($self:ident, $stream:ident => $body:expr) => {
        match &mut $self.get_mut().socket {
            Socket::Tcp($stream) => $body,
            Socket::Tls($stream) => $body,
            Socket::Unix($stream) => $body,
            Socket::Simulated($stream) => $body,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let earlier = buffer.filled().len();
        let first_bytes = self.first_bytes.upgrade();
        let read = each!(self, stream => Pin::new(stream).poll_read(context, buffer));

        if let Some(first_bytes) = first_bytes {
            let mut kept = first_bytes.lock();
            let free = FIRST_BYTES_MAX.saturating_sub(kept.len());
            kept.extend(buffer.filled()[earlier..].iter().take(free));
        }
        read
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = each!(self, stream => Pin::new(stream).poll_write(context, bytes));
        match written {
            Poll::Ready(Err(error)) if has_closed(&error) => Poll::Ready(Ok(bytes.len())),
            written => written,
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_shutdown(context))
    }
}
