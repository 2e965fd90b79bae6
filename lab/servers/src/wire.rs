//! A wire before a service, which can be slow, cut, frozen or lossy.

mod delay;
mod direction;
mod link;

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use delay::Delay;
use link::Link;

/// A TCP proxy on a free loopback port before any service. Dropping it cuts all connections.
///
/// Each control is effective when it returns, for the connections that are there and those that come. What was on its
/// way is not called back: a delay holds for what comes after it was set.
///
/// ```
/// use std::time::Duration;
/// use lab_servers::{Raw, Redis, Wire};
///
/// let redis = Redis::start();
/// let wire = Wire::to(redis.address());
/// wire.delay(Duration::from_millis(2));
/// let mut raw = Raw::connect(wire.address())?;
/// assert_eq!(raw.request(&["PING"])?.text(), "PONG");
/// wire.partition();
/// assert!(raw.request(&["PING"]).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Wire {
    shared: Arc<Shared>,
    listener: Arc<TcpListener>,
    acceptor: Option<JoinHandle<()>>,
    port: u16,
}

/// What went through a wire so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Connections ever taken.
    pub connections: u64,
    /// Connections ever refused.
    pub refused: u64,
    /// Connections there now.
    pub present: u64,
    /// Bytes given to the service.
    pub to_server: u64,
    /// Bytes given to clients.
    pub to_client: u64,
    /// Bytes on their way to the service now: delayed or frozen.
    pub waiting_to_server: u64,
    /// Bytes on their way to clients now: delayed, frozen or held.
    pub waiting_to_client: u64,
    /// Bytes that clients were never given.
    pub lost: u64,
    /// How often a piece was sent again, as a [lossy](Wire::packet_loss) wire had lost it.
    pub resent: u64,
}

/// What the threads of a wire have in common.
#[derive(Debug)]
struct Shared {
    server: Mutex<SocketAddr>,
    rules: Mutex<Rules>,
    rules_changed: Condvar,
    links: Mutex<Vec<Arc<Link>>>,
    counts: Counts,
}

/// What is done with connections and bytes.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
struct Rules {
    delay: Delay,
    tiny_segments: bool,
    refuses: bool,
    frozen: bool,
    holds_replies: bool,
    loses_replies: bool,
    replies_to_drop: u64,
    closed: bool,
}

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    refused: AtomicU64,
    to_server: AtomicU64,
    to_client: AtomicU64,
    lost: AtomicU64,
    resent: AtomicU64,
}

impl Wire {
    /// A wire to a service, which need not be there yet: it is connected to whenever a client connects.
    pub fn to(server: impl ToSocketAddrs) -> Self {
        let server = server
            .to_socket_addrs()
            .ok()
            .and_then(|mut found| found.next())
            .expect("the service has an address");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .expect("the machine has a free loopback port");
        let port = listener
            .local_addr()
            .expect("a listener has an address")
            .port();
        let (shared, listener) = (Arc::new(Shared::new(server)), Arc::new(listener));
        let (accepting, accepted) = (shared.clone(), listener.clone());
        let acceptor = start("wire", move || accepting.accept(&accepted));
        Self {
            shared,
            listener,
            acceptor: Some(acceptor),
            port,
        }
    }

    /// Where clients find it: `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where clients find it: `SCHEME://127.0.0.1:PORT`.
    #[must_use]
    pub fn url_of(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.address())
    }

    /// Leads to another service from now on; connections that are there stay where they are.
    pub fn lead_to(&self, server: impl ToSocketAddrs) {
        let found = server
            .to_socket_addrs()
            .ok()
            .and_then(|mut found| found.next());
        *lock(&self.shared.server) = found.expect("the service has an address");
    }

    /// Everything takes this much longer, each way. Throughput is as before. Ends [`jitter`](Self::jitter) and
    /// [`packet_loss`](Self::packet_loss), whose place it takes.
    pub fn delay(&self, delay: Duration) {
        self.rule(|rules| rules.delay = Delay::Even(delay));
    }

    /// Each piece takes longer by a time drawn from this range, each way; what follows it on its connection waits for it. A
    /// piece is what arrives at once. Ended by [`delay`](Self::delay).
    ///
    /// # Panics
    /// If the range is empty.
    pub fn jitter(&self, range: Range<Duration>) {
        let micros = |time: Duration| u64::try_from(time.as_micros()).expect("shorter than an age");
        let micros = micros(range.start)..micros(range.end);
        assert!(!micros.is_empty(), "nothing can be drawn from {range:?}");
        self.rule(|rules| rules.delay = Delay::Drawn(micros));
    }

    /// Loses pieces at this probability, each way, as an IP network does: TCP sends them again, so that they come 200 ms late,
    /// 600 ms if lost again, and so on up to 3 s, and all that follows on the connection waits behind. Connecting loses
    /// nothing. Ended by [`delay`](Self::delay).
    pub fn packet_loss(&self, probability: f64) {
        self.rule(|rules| rules.delay = Delay::Lossy(probability));
    }

    /// Everything passes a few bytes at a time, each way, some 20 kB/s on each connection.
    pub fn tiny_segments(&self, dribbles: bool) {
        self.rule(|rules| rules.tiny_segments = dribbles);
    }

    /// Cuts the connections that are there, both ways. What was on its way is lost.
    pub fn partition(&self) {
        let links = std::mem::take(&mut *lock(&self.shared.links));
        for link in links {
            link.close();
        }
    }

    /// Closes new connections at once, often before the client has seen them open. Those that are there stay.
    pub fn refuse(&self, refuses: bool) {
        self.rule(|rules| rules.refuses = refuses);
    }

    /// Nothing passes either way, not even the end of a connection, and new connections are taken but not passed on.
    /// What came meanwhile is delivered when it thaws.
    pub fn freeze(&self, frozen: bool) {
        self.rule(|rules| rules.frozen = frozen);
    }

    /// Keeps all replies, to be delivered when this ends.
    pub fn hold_replies(&self, holds: bool) {
        self.rule(|rules| rules.holds_replies = holds);
    }

    /// Loses all replies. A connection that was there when this began, or came before it ended, hears nothing more until
    /// it is closed, as no TCP stream goes on behind a gap.
    pub fn lose_replies(&self, loses: bool) {
        self.rule(|rules| rules.loses_replies = loses);
        if loses {
            self.drop_replies_silently();
        }
    }

    /// Loses all replies to the connections that are there, until they are closed. New ones hear.
    pub fn drop_replies_silently(&self) {
        lock(&self.shared.links)
            .iter()
            .for_each(|link| link.drop_replies_silently());
    }

    /// Loses the next `number` replies, each with all that follows it on the same connection. So it concerns as many
    /// connections: a reply is what arrives in one piece at one that still hears.
    pub fn drop_replies(&self, number: u64) {
        self.rule(|rules| rules.replies_to_drop = number);
    }

    /// What went through so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let Counts {
            connections,
            refused,
            to_server,
            to_client,
            lost,
            resent,
        } = &self.shared.counts;
        let links = lock(&self.shared.links);
        Traffic {
            connections: connections.load(Relaxed),
            refused: refused.load(Relaxed),
            present: links.len() as u64,
            to_server: to_server.load(Relaxed),
            to_client: to_client.load(Relaxed),
            waiting_to_server: links.iter().map(|link| link.waiting().0).sum(),
            waiting_to_client: links.iter().map(|link| link.waiting().1).sum(),
            lost: lost.load(Relaxed),
            resent: resent.load(Relaxed),
        }
    }

    fn rule(&self, change: impl FnOnce(&mut Rules)) {
        change(&mut lock(&self.shared.rules));
        self.shared.wake();
        lock(&self.shared.links).iter().for_each(|link| link.wake());
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.rule(|rules| rules.closed = true);
        // Wakes the acceptor; if it is gone already, that is as good.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        if let Some(acceptor) = self.acceptor.take() {
            // If it has panicked, its panic has been printed, and a drop must not panic.
            let _ = acceptor.join();
        }
        self.partition();
    }
}

impl Shared {
    fn new(server: SocketAddr) -> Self {
        let (rules, rules_changed, links, counts) = Default::default();
        let server = Mutex::new(server);
        Self {
            server,
            rules,
            rules_changed,
            links,
            counts,
        }
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        lock(&self.rules)
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        loop {
            match listener.accept() {
                Ok((client, _)) => self.take(client),
                Err(_) if self.rules().closed => return,
                Err(e) if e.kind() == ErrorKind::ConnectionAborted => {}
                Err(e) => panic!("a wire cannot take connections: {e}"),
            }
        }
    }

    fn take(self: &Arc<Self>, client: TcpStream) {
        if self.rules().refuses {
            self.counts.refused.fetch_add(1, Relaxed);
            return close_hard(&client);
        }
        self.counts.connections.fetch_add(1, Relaxed);
        let link = Arc::new(Link::new(self.clone(), client));
        lock(&self.links).push(link.clone());
        start("wire up", move || link.run());
    }

    /// Connects to the service, not before it thaws, unless nobody wants it any more.
    fn connect(&self, is_over: impl Fn() -> bool) -> io::Result<TcpStream> {
        let waits = |rules: &mut Rules| rules.frozen && !rules.closed && !is_over();
        drop(
            self.rules_changed
                .wait_while(self.rules(), waits)
                .unwrap_or_else(PoisonError::into_inner),
        );
        if is_over() {
            Err(ErrorKind::NotConnected.into())
        } else {
            TcpStream::connect(*lock(&self.server))
        }
    }

    /// Lets who waits for a thaw look again.
    fn wake(&self) {
        // With the lock: who is about to wait has either seen what changed, or waits by now.
        let _rules = self.rules();
        self.rules_changed.notify_all();
    }

    fn forget(&self, link: &Link) {
        lock(&self.links).retain(|other| !std::ptr::eq(other.as_ref(), link));
    }
}

/// Ends it in a way that nobody takes for a good end: with a reset, once the last who uses it lets go.
fn close_hard(stream: &TcpStream) {
    // Both fail only if the other end was faster.
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
    let _ = stream.shutdown(Shutdown::Both);
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    thread::Builder::new()
        .name(name.into())
        .spawn(work)
        .expect("a thread can be started")
}

/// Nothing is half done when a thread of a wire panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
