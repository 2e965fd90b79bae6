//! A server with connections, in the time of the runtime.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use crate::group::Group;
use crate::replication::{Following, Past};
use crate::reply::Reply;
use crate::resp::{self, Protocol};
use crate::server::{Connection, Restart, Server};

/// A server that serves connections.
///
/// ```text
/// running ──stop───► stopped ──restart──► running
/// master  ──follow─► replica ──promote──► master
/// ```
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
    group: Group,
    connections: BTreeMap<Connection, ConnectionState>,
    last_connection: Connection,
    /// The connections whose last request was `ASKING`.
    asking: BTreeSet<Connection>,
    stopped_at: Option<Instant>,
    following: Option<Following>,
    past: Past,
}

#[derive(Debug)]
struct ConnectionState {
    /// Where the messages to the connection go. The connection ends when it is dropped.
    inbox: UnboundedSender<Vec<u8>>,
    protocol: Protocol,
    /// The client is told which keys change that begin so.
    tracked: Option<Vec<u8>>,
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
    ///
    /// Clients tell the histories of two servers apart by the first ten characters.
    #[must_use]
    pub fn start(history: &str) -> Arc<Self> {
        let state = HostState {
            server: Server::new(history),
            group: Group::None,
            connections: BTreeMap::new(),
            last_connection: 0,
            asking: BTreeSet::new(),
            stopped_at: None,
            following: None,
            past: Past::default(),
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
        self.state.lock().execute(0, self.now(), &words)
    }

    /// Ends all connections, and refuses others until the server is restarted.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.connections.clear();
        state.stopped_at.get_or_insert_with(Instant::now);
    }

    /// Restarts the server, whether it runs or not. All connections end.
    pub fn restart(&self, restart: Restart) {
        let mut state = self.state.lock();
        state.connections.clear();
        state.stopped_at = None;
        state.server.restart(restart);
        state.note();
    }

    /// Whether the server accepts connections.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state.lock().stopped_at.is_none()
    }

    /// Ends all connections.
    pub fn disconnect_all(&self) {
        self.state.lock().connections.clear();
    }

    /// Makes the server a replica that has what `master` had before the lag. Its connections stay.
    pub fn follow(&self, master: &Arc<Self>, lag: Duration) {
        let mut followed = master.state.lock();
        let HostState { past, server, .. } = &mut *followed;
        past.keep(lag, server);
        drop(followed);
        let master = Arc::clone(master);

        let mut state = self.state.lock();
        state.past = Past::default();
        state.following = Some(Following { master, lag });
        state.receive();
    }

    /// Makes a replica a master with the data that it has received.
    pub fn promote(&self) {
        let mut state = self.state.lock();
        state.receive();
        state.following = None;
        state.server.promote();
    }

    /// Moves the keys of another server that `is_moved` selects to this one.
    pub(crate) fn take_keys(&self, from: &Self, is_moved: impl Fn(&[u8]) -> bool) {
        let mut from = from.state.lock();
        let mut state = self.state.lock();
        state.server.take_keys(&mut from.server, is_moved);
        from.note();
        state.note();
    }

    pub(crate) fn join(&self, group: Group) {
        self.state.lock().group = group;
    }

    /// Returns the state that a replica with this lag has received.
    pub(crate) fn received(&self, lag: Duration) -> Server {
        let state = self.state.lock();
        let time = state.stopped_at.unwrap_or_else(Instant::now);
        state.past.state(time, lag).clone()
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
        let connection = self.connect(inbox)?;
        let _ending = Ending {
            host: self,
            connection,
        };
        let mut received = Vec::new();

        loop {
            while let Some(words) = resp::take_request(&mut received) {
                wire.before().await?;
                let mut sent = self.execute(connection, &words)?;
                let passed = wire.pass(&mut sent).await;
                stream.write_all(&sent).await?;
                passed?;
            }

            tokio::select! {
                biased;
                message = messages.recv() => {
                    let mut sent = message.ok_or(io::ErrorKind::ConnectionReset)?;
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

    fn connect(&self, inbox: UnboundedSender<Vec<u8>>) -> io::Result<Connection> {
        let mut state = self.state.lock();
        if state.stopped_at.is_some() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }

        state.last_connection += 1;
        let connection = state.last_connection;
        let begun = ConnectionState {
            inbox,
            protocol: Protocol::Resp2,
            tracked: None,
        };
        state.connections.insert(connection, begun);
        Ok(connection)
    }

    /// Returns what the server sends for a request.
    fn execute(&self, connection: Connection, words: &[Vec<u8>]) -> io::Result<Vec<u8>> {
        let mut state = self.state.lock();
        let Some(ours) = state.connections.get_mut(&connection) else {
            return Err(io::ErrorKind::ConnectionReset.into());
        };
        let name = words.first().map(|word| word.to_ascii_uppercase());
        if name.as_deref() == Some(b"HELLO") {
            ours.protocol = Protocol::Resp3;
        }
        if let [b"CLIENT", b"TRACKING", b"ON", b"BCAST", b"PREFIX", prefix] = &*slices(words) {
            ours.tracked = Some(prefix.to_vec());
        }
        let protocol = ours.protocol;

        let mut sent = Vec::new();
        match (name.as_deref(), words.get(1)) {
            (Some(b"HELLO"), _) => resp::write_hello(&mut sent),
            (Some(name @ (b"SUBSCRIBE" | b"UNSUBSCRIBE")), Some(channel)) => {
                state.execute(connection, self.now(), words);
                let kind = String::from_utf8_lossy(name).to_lowercase();
                resp::write_subscription(&kind, channel, protocol, &mut sent);
            }
            _ => {
                let reply = state.execute(connection, self.now(), words);
                resp::write(&reply, protocol, &mut sent);
            }
        }
        Ok(sent)
    }

    fn now(&self) -> i64 {
        let passed = i64::try_from(self.start.elapsed().as_micros());
        self.base + passed.expect("a history takes hours")
    }
}

impl HostState {
    fn execute(&mut self, from: Connection, now: i64, words: &[Vec<u8>]) -> Reply {
        let is_tracked = self.connections.values().any(|to| to.tracked.is_some());
        let before = is_tracked.then(|| self.server.clone());
        self.receive();
        let reply = self
            .reply_of_group(from, now, words)
            .unwrap_or_else(|| self.server.execute(from, now, words));
        self.note();
        self.deliver();
        if let Some(before) = before {
            self.invalidate(&self.server.changed_since(&before));
        }
        reply
    }

    /// Tells the clients that track keys which of them have changed.
    fn invalidate(&self, keys: &[Vec<u8>]) {
        for to in self.connections.values() {
            let Some(prefix) = &to.tracked else { continue };
            for key in keys.iter().filter(|key| key.starts_with(prefix)) {
                let mut text = Vec::new();
                resp::write_invalidation(key, &mut text);
                // The connection may have just ended.
                let _ = to.inbox.send(text);
            }
        }
    }

    /// Returns the reply of a sentinel or a node, if it does not come from the server's data.
    fn reply_of_group(&mut self, from: Connection, now: i64, words: &[Vec<u8>]) -> Option<Reply> {
        match &self.group {
            Group::None => None,
            Group::Sentinel(sentinel) => sentinel.reply(words),
            Group::Cluster(node) => {
                let is_asking = self.asking.remove(&from);
                if words.first().is_some_and(|name| name == b"ASKING") {
                    self.asking.insert(from);
                }
                let has_key = |key: &[u8]| {
                    let request = [b"EXISTS".to_vec(), key.to_vec()];
                    self.server.execute(from, now, &request) == Reply::Int(1)
                };
                node.reply(words, is_asking, has_key)
            }
        }
    }

    /// Takes over what has arrived from the master.
    fn receive(&mut self) {
        if let Some(Following { master, lag }) = &self.following {
            self.server.follow(&master.received(*lag));
        }
    }

    fn note(&mut self) {
        self.past.note(&self.server);
    }

    fn deliver(&mut self) {
        for message in self.server.take_messages() {
            if let Some(to) = self.connections.get(&message.to) {
                let mut text = Vec::new();
                resp::write_message(&message, to.protocol, &mut text);
                // The connection may have just ended.
                let _ = to.inbox.send(text);
            }
        }
    }
}

fn slices(words: &[Vec<u8>]) -> Vec<&[u8]> {
    words.iter().map(Vec::as_slice).collect()
}

/// Ends a connection, however it ends.
struct Ending<'a> {
    host: &'a Host,
    connection: Connection,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let mut state = self.host.state.lock();
        state.connections.remove(&self.connection);
        state.server.disconnect(self.connection);
    }
}
