//! The barest client there can be: the limit that benchmarks compare with.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::reply::{Reply, size};

/// How long an answer may take before a test gives up on it: no promise, only the end of patience.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);
/// Fits the replies of a lock many times over, and grows for others.
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
    /// What was received and not read yet is `buffer[begin..end]`.
    begin: usize,
    end: usize,
}

impl Raw {
    /// Connects to a server, or to a wire before it. Packets leave at once, and an answer may take a minute.
    ///
    /// # Errors
    /// If nobody listens.
    pub fn connect(address: impl ToSocketAddrs) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let raw = Self::new(stream);
        raw.wait_at_most(TIMEOUT)?;
        Ok(raw)
    }

    /// Waits no longer than this for an answer.
    ///
    /// # Errors
    /// If it is nothing.
    pub fn wait_at_most(&self, timeout: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(timeout))
    }
}

impl<S: Read + Write> Raw<S> {
    /// Speaks over a stream.
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            buffer: vec![0; BUFFER],
            begin: 0,
            end: 0,
        }
    }

    /// The stream below.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Asks one thing and waits for the answer.
    ///
    /// # Errors
    /// If the connection fails, or nothing is answered in time.
    pub fn request(&mut self, words: &[&str]) -> io::Result<Reply> {
        self.send(&request(words))?;
        self.receive_reply()
    }

    /// Asks what [`request`] made, and waits for the answer, which is not read any further.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn request_bytes(&mut self, request: &[u8]) -> io::Result<&[u8]> {
        self.send(request)?;
        self.receive_bytes()
    }

    /// Sends requests, and waits for nothing.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn send(&mut self, requests: &[u8]) -> io::Result<()> {
        self.stream.write_all(requests)
    }

    /// Waits for the next answer, or message.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn receive_reply(&mut self) -> io::Result<Reply> {
        let bytes = self.receive_bytes()?;
        Ok(Reply::read(bytes).expect("its size was measured").0)
    }

    /// Waits for the next answer, or message, which is not read any further.
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
        (self.begin, self.end) = (0, self.end - self.begin);
        if self.end == self.buffer.len() {
            self.buffer.resize(2 * self.end, 0);
        }
        let size = self.stream.read(&mut self.buffer[self.end..])?;
        self.end += size;
        if size == 0 {
            Err(ErrorKind::UnexpectedEof.into())
        } else {
            Ok(())
        }
    }
}

/// The bytes of a request.
#[must_use]
pub fn request(words: &[&str]) -> Vec<u8> {
    let words = words
        .iter()
        .map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let begin = std::iter::once(format!("*{}\r\n", words.len()));
    begin.chain(words).collect::<String>().into_bytes()
}
