//! A server with connections, in the time of the runtime.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use crate::reply::Reply;
use crate::resp;
use crate::server::{Connection, Server};

/// A server that serves connections.
#[derive(Debug)]
pub struct Host {
    state: Mutex<HostState>,
    start: Instant,
    /// What the server's clock shows at the start, in microseconds.
    base: i64,
}

#[derive(Debug)]
struct HostState {
    server: Server,
    /// Where the messages to each connection go.
    inboxes: BTreeMap<Connection, UnboundedSender<Vec<u8>>>,
    connections: Connection,
}

/// How a connection treats the bytes between a client and the server.
pub trait Wire: Send {
    /// Waits before a request is executed. An error breaks the connection before it.
    fn before(&mut self) -> impl Future<Output = io::Result<()>> + Send;

    /// Changes what the server sends. The connection breaks after it if the result says so.
    fn pass(&mut self, sent: &mut Vec<u8>) -> impl Future<Output = io::Result<()>> + Send;
}

impl Host {
    /// Starts a server. Its clock begins in 2025.
    #[must_use]
    pub fn start(history: &str) -> Arc<Self> {
        let state = HostState {
            server: Server::new(history),
            inboxes: BTreeMap::new(),
            connections: 0,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            start: Instant::now(),
            base: 1_750_000_000_000_000,
        })
    }

    /// Executes a request that comes over no connection.
    pub fn request(&self, words: &[&str]) -> Reply {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.state.lock().server.execute(0, self.now(), &words)
    }

    /// Serves one connection until it breaks.
    ///
    /// # Errors
    /// The reason of the break.
    pub async fn serve<S>(&self, mut stream: S, mut wire: impl Wire) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin,
    {
        let (inbox, mut messages) = unbounded_channel();
        let connection = self.connect(inbox);
        let _ending = Ending {
            host: self,
            connection,
        };
        let mut received = Vec::new();

        loop {
            while let Some(words) = resp::take_request(&mut received) {
                wire.before().await?;
                let mut sent = self.execute(connection, &words);
                let passed = wire.pass(&mut sent).await;
                stream.write_all(&sent).await?;
                passed?;
            }

            tokio::select! {
                biased;
                Some(mut sent) = messages.recv() => {
                    let passed = wire.pass(&mut sent).await;
                    stream.write_all(&sent).await?;
                    passed?;
                }
                read = stream.read_buf(&mut received) => if read? == 0 {
                    return Ok(());
                }
            }
        }
    }

    fn connect(&self, inbox: UnboundedSender<Vec<u8>>) -> Connection {
        let mut state = self.state.lock();
        state.connections += 1;
        let connection = state.connections;
        state.inboxes.insert(connection, inbox);
        connection
    }

    fn execute(&self, connection: Connection, words: &[Vec<u8>]) -> Vec<u8> {
        let mut state = self.state.lock();
        let mut sent = Vec::new();
        let name = words.first().map(|word| word.to_ascii_uppercase());
        match (name.as_deref(), words.get(1)) {
            (Some(b"HELLO"), _) => resp::write_hello(&mut sent),
            (Some(name @ (b"SUBSCRIBE" | b"UNSUBSCRIBE")), Some(channel)) => {
                state.server.execute(connection, self.now(), words);
                let kind = String::from_utf8_lossy(name).to_lowercase();
                resp::write_subscription(&kind, channel, &mut sent);
            }
            _ => {
                let reply = state.server.execute(connection, self.now(), words);
                resp::write(&reply, &mut sent);
            }
        }

        for message in state.server.take_messages() {
            let mut text = Vec::new();
            resp::write_message(&message, &mut text);
            if let Some(inbox) = state.inboxes.get(&message.to) {
                // The connection may have just ended.
                let _ = inbox.send(text);
            }
        }
        sent
    }

    fn now(&self) -> i64 {
        let passed = i64::try_from(self.start.elapsed().as_micros());
        self.base + passed.expect("a history takes hours")
    }
}

/// Ends a connection, however it ends.
struct Ending<'a> {
    host: &'a Host,
    connection: Connection,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let mut state = self.host.state.lock();
        state.inboxes.remove(&self.connection);
        state.server.disconnect(self.connection);
    }
}
