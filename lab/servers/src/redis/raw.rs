//! The smallest possible Redis client. Benchmarks use its speed as the upper limit.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::reply::{Reply, size};

/// How long a test waits for a reply before it fails. This is not a guarantee: the limit only ends
/// a test that hangs.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);
/// The initial size of the buffer in bytes. It fits many replies of a lock, and it grows for larger
/// replies.
const BUFFER: usize = 16 * 1024;

/// A blocking connection that speaks RESP2.
///
/// ```
/// use lab_servers::{Redis, request};
///
/// let redis = Redis::start();
/// let mut raw = redis.connection();
/// let ping = request(&["PING"]);
/// assert_eq!(raw.request_bytes(&ping)?, b"+PONG\r\n");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Raw<S = TcpStream> {
    stream: S,
    buffer: Vec<u8>,
    /// The start of the bytes that were received and not read yet: `buffer[begin..end]`.
    begin: usize,
    end: usize,
}

impl Raw {
    /// Connects to a server, or to a wire in front of it. The socket sends packets at once, and the
    /// timeout of a reply is one minute.
    ///
    /// # Errors
    /// Fails if no server listens at the address.
    pub fn connect(address: impl ToSocketAddrs) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let raw = Self::new(stream);
        raw.wait_at_most(TIMEOUT)?;
        Ok(raw)
    }

    /// Sets the timeout of a reply.
    ///
    /// # Errors
    /// Fails if the timeout is zero.
    pub fn wait_at_most(&self, timeout: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(timeout))
    }
}

impl<S: Read + Write> Raw<S> {
    /// Makes a client of an open stream.
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            buffer: vec![0; BUFFER],
            begin: 0,
            end: 0,
        }
    }

    /// The stream that carries the requests and replies.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Sends one request and waits for its reply.
    ///
    /// # Errors
    /// Fails if the connection fails, or if the reply does not arrive within the timeout.
    pub fn request(&mut self, words: &[&str]) -> io::Result<Reply> {
        self.send(&request(words))?;
        self.receive_reply()
    }

    /// Sends the bytes that [`request`] made, and waits for the reply. The reply is returned as
    /// bytes and is not parsed.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn request_bytes(&mut self, request: &[u8]) -> io::Result<&[u8]> {
        self.send(request)?;
        self.receive_bytes()
    }

    /// Sends requests and does not wait for replies.
    ///
    /// # Errors
    /// Fails if the connection fails.
    pub fn send(&mut self, requests: &[u8]) -> io::Result<()> {
        self.stream.write_all(requests)
    }

    /// Waits for the next reply or pushed message.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn receive_reply(&mut self) -> io::Result<Reply> {
        let bytes = self.receive_bytes()?;
        Ok(Reply::read(bytes).expect("the reply is complete").0)
    }

    /// Waits for the next reply or pushed message, and returns its bytes without parsing them.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn receive_bytes(&mut self) -> io::Result<&[u8]> {
        loop {
            if let Some(size) = size(&self.buffer[self.begin..self.end]) {
                let whole = self.begin..self.begin + size;
                self.begin = whole.end;
                return Ok(&self.buffer[whole]);
            }
            self.receive()?;
        }
    }

    fn receive(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.begin..self.end, 0);
        self.end -= self.begin;
        self.begin = 0;

        if self.end == self.buffer.len() {
            self.buffer.resize(2 * self.end, 0);
        }

        let size = loop {
            match self.stream.read(&mut self.buffer[self.end..]) {
                // A read with a time limit is not continued after a signal.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.end += size;
        if size == 0 {
            Err(ErrorKind::UnexpectedEof.into())
        } else {
            Ok(())
        }
    }
}

/// Encodes a request as RESP2 bytes.
#[must_use]
pub fn request(words: &[&str]) -> Vec<u8> {
    let words = words
        .iter()
        .map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let begin = std::iter::once(format!("*{}\r\n", words.len()));
    begin.chain(words).collect::<String>().into_bytes()
}
