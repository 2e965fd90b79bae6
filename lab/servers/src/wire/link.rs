//! One connection through a wire.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::Duration;

use super::direction::Direction;
use super::{Shared, close_hard, lock, start};

/// The size of a tiny segment in bytes.
const DROP: usize = 3;
/// The pause after a tiny segment. It is long enough that the peer reads two segments separately.
const DRIP: Duration = Duration::from_micros(100);

/// The direction of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Toward {
    Server,
    Client,
}

/// One connection: the sockets of the client and the service, and a direction toward each.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) shared: Arc<Shared>,
    client: TcpStream,
    /// Empty until the wire has connected to the service.
    server: OnceLock<TcpStream>,
    to_server: Direction,
    to_client: Direction,
    /// Whether the client does not receive any more bytes.
    deaf: AtomicBool,
    over: AtomicBool,
}

impl Link {
    pub(super) fn new(shared: Arc<Shared>, client: TcpStream) -> Self {
        Self {
            shared,
            client,
            server: OnceLock::new(),
            to_server: Direction::new(Toward::Server),
            to_client: Direction::new(Toward::Client),
            deaf: AtomicBool::new(false),
            over: AtomicBool::new(false),
        }
    }

    /// Connects to the service, and forwards bytes in both directions until both ends have closed.
    pub(super) fn run(self: Arc<Self>) {
        if self.connect().is_err() || self.is_over() {
            return self.close();
        }
        let link = self.clone();
        start("wire down", move || link.to_client.read_on(&link));
        self.to_server.read_on(&self);
    }

    fn connect(&self) -> io::Result<()> {
        let server = self.shared.connect(|| self.is_over())?;
        server.set_nodelay(true)?;
        self.client.set_nodelay(true)?;
        self.server.set(server).expect("the link connects once");
        Ok(())
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    /// Closes the connection in both directions at once.
    pub(super) fn close(&self) {
        self.over.store(true, SeqCst);
        close_hard(&self.client);
        self.server.get().into_iter().for_each(close_hard);
        self.wake();
        self.shared.wake();
        self.shared.forget(self);
    }

    /// Drops all later replies, so that the client does not receive any more bytes.
    pub(super) fn drop_replies_silently(&self) {
        self.deaf.store(true, SeqCst);
    }

    /// Wakes both directions, so that they check the rules again.
    pub(super) fn wake(&self) {
        self.to_server.wake();
        self.to_client.wake();
    }

    /// Returns the bytes in flight to the service, and to the client.
    pub(super) fn waiting(&self) -> (u64, u64) {
        (self.to_server.waiting(), self.to_client.waiting())
    }

    pub(super) fn direction(&self, toward: Toward) -> &Direction {
        if toward == Toward::Server {
            &self.to_server
        } else {
            &self.to_client
        }
    }

    /// The socket from which this direction reads.
    pub(super) fn source(&self, toward: Toward) -> &TcpStream {
        if toward == Toward::Server {
            &self.client
        } else {
            self.server()
        }
    }

    /// Writes a piece to its socket. An empty piece closes the socket for writing.
    pub(super) fn deliver(&self, toward: Toward, piece: &[u8]) {
        let done = if piece.is_empty() {
            self.sink(toward).shutdown(Shutdown::Write)
        } else if toward == Toward::Client && self.loses() {
            lock(&self.shared.counts).lost += piece.len() as u64;
            Ok(())
        } else {
            self.write(toward, piece)
        };

        if done.is_err() {
            self.close();
        } else if self.to_server.is_done() && self.to_client.is_done() {
            self.shared.forget(self);
        }
    }

    fn write(&self, toward: Toward, bytes: &[u8]) -> io::Result<()> {
        let size = bytes.len() as u64;
        // Count before the write: a client that has received the bytes must find them counted.
        match toward {
            Toward::Server => lock(&self.shared.counts).to_server += size,
            Toward::Client => lock(&self.shared.counts).to_client += size,
        }

        let mut left = bytes;
        while !left.is_empty() && self.shared.rules().tiny_segments {
            let (drop, rest) = left.split_at(left.len().min(DROP));
            io::Write::write_all(&mut self.sink(toward), drop)?;
            sleep(DRIP);
            left = rest;
        }

        io::Write::write_all(&mut self.sink(toward), left)
    }

    /// Whether the next reply is lost, together with all later replies.
    fn loses(&self) -> bool {
        if self.deaf.load(SeqCst) {
            return true;
        }
        let mut rules = self.shared.rules();
        let dropped = rules.replies_to_drop > 0;
        rules.replies_to_drop -= u64::from(dropped);
        if dropped || rules.loses_replies {
            self.drop_replies_silently();
        }
        dropped || rules.loses_replies
    }

    fn sink(&self, toward: Toward) -> &TcpStream {
        if toward == Toward::Server {
            self.server()
        } else {
            &self.client
        }
    }

    fn server(&self) -> &TcpStream {
        self.server
            .get()
            .expect("bytes are forwarded only after the connect to the service")
    }
}
