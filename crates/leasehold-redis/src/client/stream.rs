//! Sockets to a server: TCP, TLS and Unix.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::address::Target;
use super::tls::{self, Encrypted};
use leasehold_core::internal::{Host, simulation};
use leasehold_core::{Error, Result};

/// After this silence the kernel probes a connection, three times at this interval.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// The kernel closes a connection whose data is not acknowledged for this time.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(15);

pub(crate) enum Stream {
    Tcp(TcpStream),
    Tls(Box<Encrypted>),
    Unix(UnixStream),
    Simulated(simulation::SimulatedStream),
}

impl Stream {
    pub(crate) async fn connect(target: &Target) -> Result<Self> {
        match target {
            Target::Tcp { host, tls: None } => match simulation::connect(&host.name, host.port) {
                Some(connected) => connected.map(Self::Simulated).map_err(unreachable),
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
    let stream = open_tcp(host).await.map_err(unreachable)?;
    tune(&stream).map_err(unreachable)?;
    Ok(stream)
}

/// Tries each address of the host for a second.
///
/// The kernel repeats a lost SYN after one second, then after three and seven. A new attempt sends
/// its own SYN at once.
async fn open_tcp(host: &Host) -> io::Result<TcpStream> {
    const ATTEMPT_MAX: Duration = Duration::from_secs(1);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");

    for address in tokio::net::lookup_host((&*host.name, host.port)).await? {
        match timeout(ATTEMPT_MAX, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }

    Err(last)
}

fn unreachable(error: io::Error) -> Error {
    Error::unavailable(format!("the server cannot be reached: {error}"))
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

macro_rules! each {
    ($self:ident, $stream:ident => $body:expr) => {
        match $self.get_mut() {
            Stream::Tcp($stream) => $body,
            Stream::Tls($stream) => $body,
            Stream::Unix($stream) => $body,
            Stream::Simulated($stream) => $body,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_read(context, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        each!(self, stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_shutdown(context))
    }
}
