//! Streams to a server: TCP, TLS and Unix.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

use super::host::{Help, Host, has_closed};
use super::tls::{Encrypted, LoadedTls};
use super::tls_settings::Tls;
use crate::runtime::fork::is_forked;
use crate::runtime::simulation;
use crate::{Error, Result};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Tcp { host: Host, tls: Option<Tls> },
    Socket(PathBuf),
}

impl Target {
    /// Returns whether others may read the connection: it leaves this machine without TLS.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        match self {
            Self::Tcp { host, tls } => tls.is_none() && !host.is_loopback(),
            Self::Socket(_) => false,
        }
    }

    /// Resolves the name of the host, for which a limit to connect may be too short.
    ///
    /// # Errors
    /// [`is_unavailable`](Error::is_unavailable) if that takes too long.
    pub async fn resolve(&self) -> Result<()> {
        match self {
            Self::Tcp { host, .. } if !simulation::is_active() => host.resolve().await,
            Self::Tcp { .. } | Self::Socket(_) => Ok(()),
        }
    }

    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tcp { tls: Some(_), .. })
    }
}

/// Opens streams to the servers of one URL. Its clones share the TLS files as they were read last.
#[derive(Clone, Debug)]
pub struct Connector {
    help: &'static Help,
    loaded: LoadedTls,
}

impl Connector {
    #[must_use]
    pub fn new(help: &'static Help) -> Self {
        Self {
            help,
            loaded: LoadedTls::default(),
        }
    }

    /// Connects to a server.
    ///
    /// # Errors
    /// - [`is_unavailable`](Error::is_unavailable) if the server cannot be reached;
    /// - [`is_denied`](Error::is_denied) if one side does not accept the other's certificate, or the
    ///   user may not open the Unix socket;
    /// - [`is_invalid`](Error::is_invalid) if the TLS files cannot be used.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn connect(&self, target: &Target) -> Result<Stream> {
        match target {
            Target::Tcp { host, tls: None } => match simulation::connect(&host.name, host.port) {
                Some(connected) => {
                    let stream = connected.map_err(|error| host.unreachable(error))?;
                    Ok(Stream::of_shared(stream))
                }
                None => Ok(Stream::new(host.connect().await?.into_split())),
            },
            Target::Tcp {
                host,
                tls: Some(tls),
            } => {
                let encrypted = self.encrypt(host.connect(), host, tls).await?;
                Ok(Stream::of_shared(encrypted))
            }
            Target::Socket(path) => {
                let stream = UnixStream::connect(path).await;
                let stream = stream.map_err(|error| self.closed(error, path))?;
                Ok(Stream::new(stream.into_split()))
            }
        }
    }

    /// Encrypts a stream to `host`. The files of `tls` are read before the stream is opened.
    ///
    /// A service whose clients request TLS on an open stream does that in `opening`.
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect).
    ///
    /// # Cancel safety
    /// Dropping the future closes the stream.
    pub async fn encrypt<S>(
        &self,
        opening: impl Future<Output = Result<S>>,
        host: &Host,
        tls: &Tls,
    ) -> Result<Encrypted<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.loaded.encrypt(opening, host, tls, self.help).await
    }

    /// Returns the reason why no server accepts a connection, if a certificate is the reason.
    ///
    /// A client library may report only that it has no connection. So this connects to each server
    /// once more.
    pub async fn refusal(&self, hosts: &[Host], tls: &Tls) -> Option<Error> {
        self.loaded.refusal(hosts, tls, self.help).await
    }

    fn closed(&self, error: io::Error, path: &Path) -> Error {
        let what = format!("the socket {} cannot be opened: {error}", path.display());
        let kind = if error.kind() == io::ErrorKind::PermissionDenied {
            Error::denied(what)
        } else {
            Error::unavailable(what)
        };
        kind.help(self.help.socket).caused_by(error)
    }
}

/// A connection to a server. One task can read it while others write.
pub struct Stream {
    reader: Reader,
    writer: Writer,
}

impl Stream {
    fn new<R, W>((reader, writer): (R, W)) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        Self {
            reader: Reader(Box::new(reader)),
            writer: Writer(Some(Box::new(writer))),
        }
    }

    /// A stream that has no halves of its own: TLS reads and writes with one state.
    fn of_shared(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        let reader = SharedHalf(Arc::new(Mutex::new(stream)));
        let writer = SharedHalf(Arc::clone(&reader.0));
        Self::new((reader, writer))
    }

    /// Returns the halves. Dropping the writer ends the stream for the server.
    #[must_use]
    pub fn into_split(self) -> (Reader, Writer) {
        (self.reader, self.writer)
    }
}

/// The half of a [`Stream`] that reads.
pub struct Reader(Box<dyn AsyncRead + Send + Unpin>);

impl AsyncRead for Reader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

/// The half of a [`Stream`] that writes.
///
/// A server that refuses a client writes the reason and closes the connection. Then a write of this
/// client fails before the reason is read, so a failed write is left to the next read.
pub struct Writer(Option<Box<dyn AsyncWrite + Send + Unpin>>);

impl Writer {
    fn half(&mut self) -> Pin<&mut (dyn AsyncWrite + Send + Unpin)> {
        let half = self.0.as_mut().expect("only a drop takes it");
        Pin::new(half.as_mut())
    }
}

impl Drop for Writer {
    /// Ends the stream, unless this process is a fork: then it is the stream of the parent.
    ///
    /// The half of a stream over TLS does not end it, because the reader has the same state.
    fn drop(&mut self) {
        if is_forked() {
            return std::mem::forget(self.0.take());
        }
        // A stream that cannot be written now ends with its reader.
        let _ = self
            .half()
            .poll_shutdown(&mut Context::from_waker(Waker::noop()));
    }
}

impl AsyncWrite for Writer {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.half().poll_write(context, bytes) {
            Poll::Ready(Err(error)) if has_closed(&error) => Poll::Ready(Ok(bytes.len())),
            written => written,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.half().poll_flush(context) {
            Poll::Ready(Err(error)) if has_closed(&error) => Poll::Ready(Ok(())),
            flushed => flushed,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.half().poll_shutdown(context)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.writer).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_shutdown(context)
    }
}

/// A half of a stream whose halves have one state.
struct SharedHalf<S>(Arc<Mutex<S>>);

impl<S: AsyncRead + Unpin> AsyncRead for SharedHalf<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock()).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SharedHalf<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.lock()).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock()).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock()).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::net::TcpListener;

    use super::*;

    static HELP: Help = Help {
        plain_scheme: "test://",
        server_name: "",
        socket: "check the path",
    };

    async fn echo(mut server: impl AsyncRead + AsyncWrite + Unpin) {
        let mut byte = [0];
        server
            .read_exact(&mut byte)
            .await
            .expect("the client writes");
        server.write_all(&byte).await.expect("the client reads");
    }

    /// A reader must not keep a writer of the same stream waiting.
    async fn written_while_read(stream: Stream) {
        let (mut reader, mut writer) = stream.into_split();
        let mut byte = [0];
        let mut reading = std::pin::pin!(reader.read_exact(&mut byte));
        assert!(futures_util::poll!(&mut reading).is_pending());

        writer.write_all(b"x").await.expect("the server reads");
        reading.await.expect("the server replies");
        assert_eq!(&byte, b"x");
    }

    #[tokio::test]
    async fn stream_is_written_while_a_task_reads_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let serving = tokio::spawn(async move {
            let (server, _) = listener.accept().await.expect("a client");
            echo(server).await;
        });
        let target = Target::Tcp {
            host: Host {
                name: "127.0.0.1".to_owned(),
                port,
            },
            tls: None,
        };
        let stream = Connector::new(&HELP).connect(&target).await;
        written_while_read(stream.expect("it listens")).await;
        serving.await.expect("no panic");

        let (client, server) = duplex(64);
        let serving = tokio::spawn(echo(server));
        written_while_read(Stream::of_shared(client)).await;
        serving.await.expect("no panic");
    }

    /// The runtime that polls the reader may be stopped.
    #[tokio::test]
    async fn dropped_writer_ends_a_stream_whose_reader_is_not_polled() {
        let (client, mut server) = duplex(64);
        let (_reader, writer) = Stream::of_shared(client).into_split();
        drop(writer);

        let read = server.read_u8().now_or_never();
        assert!(read.expect("the stream has ended").is_err());
    }
}
