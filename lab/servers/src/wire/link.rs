//! One connection through a wire.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::Duration;

use super::direction::Direction;
use super::{Shared, close_hard, start};

/// How much passes at a time, in bytes, where it dribbles, and when the next does: too late to be read together.
const DROP: usize = 3;
const DRIP: Duration = Duration::from_micros(100);

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Toward {
    Server,
    Client,
}

/// A client, the service, and a lane each way.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) shared: Arc<Shared>,
    client: TcpStream,
    /// Absent until the service was connected to.
    server: OnceLock<TcpStream>,
    to_server: Direction,
    to_client: Direction,
    /// Whether the client hears nothing more.
    deaf: AtomicBool,
    over: AtomicBool,
}

impl Link {
    pub(super) fn new(shared: Arc<Shared>, client: TcpStream) -> Self {
        let (server, deaf, over) = (
            OnceLock::new(),
            AtomicBool::new(false),
            AtomicBool::new(false),
        );
        let (to_server, to_client) = (
            Direction::new(Toward::Server),
            Direction::new(Toward::Client),
        );
        Self {
            shared,
            client,
            server,
            to_server,
            to_client,
            deaf,
            over,
        }
    }

    /// Connects to the service, and carries bytes both ways until both ends have ended.
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
        self.server.set(server).expect("it is connected to once");
        Ok(())
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    /// Ends it both ways, at once.
    pub(super) fn close(&self) {
        self.over.store(true, SeqCst);
        close_hard(&self.client);
        self.server.get().into_iter().for_each(close_hard);
        self.wake();
        self.shared.wake();
        self.shared.forget(self);
    }

    /// The client hears nothing more.
    pub(super) fn drop_replies_silently(&self) {
        self.deaf.store(true, SeqCst);
    }

    /// Lets both lanes look at the rules again.
    pub(super) fn wake(&self) {
        self.to_server.wake();
        self.to_client.wake();
    }

    /// Bytes on their way to the service, and to the client.
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

    /// Where what goes this way comes from.
    pub(super) fn source(&self, toward: Toward) -> &TcpStream {
        if toward == Toward::Server {
            &self.client
        } else {
            self.server()
        }
    }

    /// Hands a piece to the end it is for; an empty one is the end.
    pub(super) fn deliver(&self, toward: Toward, piece: &[u8]) {
        let done = if piece.is_empty() {
            self.sink(toward).shutdown(Shutdown::Write)
        } else if toward == Toward::Client && self.loses() {
            self.shared
                .counts
                .lost
                .fetch_add(piece.len() as u64, Relaxed);
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
        let counts = &self.shared.counts;
        let count = if toward == Toward::Server {
            &counts.to_server
        } else {
            &counts.to_client
        };
        // Before: who has received it must find it counted.
        count.fetch_add(bytes.len() as u64, Relaxed);
        let mut left = bytes;
        while !left.is_empty() && self.shared.rules().tiny_segments {
            let (drop, rest) = left.split_at(left.len().min(DROP));
            io::Write::write_all(&mut self.sink(toward), drop)?;
            sleep(DRIP);
            left = rest;
        }
        io::Write::write_all(&mut self.sink(toward), left)
    }

    /// Whether the next reply is lost, and with it all that follow.
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
            .expect("nothing is carried before the service was connected to")
    }
}
