//! A wire, which is a proxy in front of a service. It can delay, cut, freeze or lose traffic.

mod delay;
mod direction;
mod link;

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use delay::Delay;
use link::Link;

/// A TCP proxy on a free loopback port in front of any service. Dropping it cuts all connections.
///
/// Each control takes effect before it returns, for present and future connections. Bytes that are
/// already in flight keep their old delay: a new delay applies only to later bytes.
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

/// The traffic of a wire since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Connections accepted since the wire was made.
    pub connections: u64,
    /// Connections refused since the wire was made.
    pub refused: u64,
    /// Connections that are open now.
    pub present: u64,
    /// Bytes delivered to the service.
    pub to_server: u64,
    /// Bytes delivered to clients.
    pub to_client: u64,
    /// Bytes in flight to the service now: delayed or frozen.
    pub waiting_to_server: u64,
    /// Bytes in flight to clients now: delayed, frozen or held.
    pub waiting_to_client: u64,
    /// Bytes that the wire lost on their way to clients.
    pub lost: u64,
    /// The number of pieces sent again after a [lossy](Wire::packet_loss) wire had lost them.
    pub resent: u64,
}

/// The state that the threads of a wire share.
#[derive(Debug)]
struct Shared {
    server: Mutex<SocketAddr>,
    rules: Mutex<Rules>,
    rules_changed: Condvar,
    links: Mutex<Vec<Arc<Link>>>,
    /// The traffic, without what is present or waits now.
    counts: Mutex<Traffic>,
}

/// The rules that the wire applies to connections and bytes.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the switches are independent"
)]
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

impl Wire {
    /// Makes a wire to a service. The service need not be running yet: the wire connects to it when
    /// a client connects.
    pub fn to(server: impl ToSocketAddrs) -> Self {
        let server = address_of(server);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .expect("the machine has a free loopback port");
        let port = listener
            .local_addr()
            .expect("a listener has an address")
            .port();

        let shared = Arc::new(Shared::new(server));
        let listener = Arc::new(listener);
        let accepting = shared.clone();
        let accepted = listener.clone();
        let acceptor = start("wire", move || accepting.accept(&accepted));
        Self {
            shared,
            listener,
            acceptor: Some(acceptor),
            port,
        }
    }

    /// Makes another wire to the same service.
    #[must_use]
    pub fn another(&self) -> Self {
        let server = *lock(&self.shared.server);
        Self::to(server)
    }

    /// The address for clients: `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The port of the wire.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL for clients: `SCHEME://127.0.0.1:PORT`.
    #[must_use]
    pub fn url_of(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.address())
    }

    /// Connects new clients to another service from now on. Present connections stay with the old
    /// service.
    pub fn lead_to(&self, server: impl ToSocketAddrs) {
        *lock(&self.shared.server) = address_of(server);
    }

    /// Delays all bytes by `delay` in each direction. The throughput does not change. This delay
    /// replaces [`jitter`](Self::jitter) and [`packet_loss`](Self::packet_loss).
    pub fn delay(&self, delay: Duration) {
        self.rule(|rules| rules.delay = Delay::Even(delay));
    }

    /// Delays each piece by a random time from this range, in each direction. Later pieces on the
    /// same connection wait for the delayed piece. A piece is the bytes that arrive in one read.
    /// [`delay`](Self::delay) ends the jitter.
    ///
    /// # Panics
    /// Panics if the range is empty.
    pub fn jitter(&self, range: Range<Duration>) {
        let micros = micros(range.start)..micros(range.end);
        assert!(!micros.is_empty(), "the range {range:?} is empty");
        self.rule(|rules| rules.delay = Delay::Drawn(micros));
    }

    /// Loses pieces with this probability in each direction, as an IP network does. TCP sends a
    /// lost piece again, so that it arrives 200 ms late. It arrives 600 ms late if it is lost
    /// twice, and so on up to 3 s. Later pieces on the same connection wait for it. Opening a
    /// connection does not lose packets. [`delay`](Self::delay) ends the loss.
    pub fn packet_loss(&self, probability: f64) {
        self.rule(|rules| rules.delay = Delay::Lossy(probability));
    }

    /// Forwards a few bytes at a time in each direction, about 20 kB/s on each connection.
    pub fn tiny_segments(&self, dribbles: bool) {
        self.rule(|rules| rules.tiny_segments = dribbles);
    }

    /// Cuts all present connections in both directions. Bytes in flight are lost.
    pub fn partition(&self) {
        let links = std::mem::take(&mut *lock(&self.shared.links));
        for link in links {
            link.close();
        }
    }

    /// Closes new connections at once, often before the client observes them as open. Present
    /// connections stay open.
    pub fn refuse(&self, refuses: bool) {
        self.rule(|rules| rules.refuses = refuses);
    }

    /// Freezes both directions: the wire does not forward bytes or the end of a connection. It
    /// accepts new connections without connecting to the service. After the thaw it delivers
    /// everything that arrived meanwhile.
    pub fn freeze(&self, frozen: bool) {
        self.rule(|rules| rules.frozen = frozen);
    }

    /// Holds all replies, and delivers them when the hold ends.
    pub fn hold_replies(&self, holds: bool) {
        self.rule(|rules| rules.holds_replies = holds);
    }

    /// Loses all replies. The loss affects present connections and those that open before it ends.
    /// Such a connection does not receive any more bytes until it is closed, because a TCP stream
    /// cannot continue after a gap.
    pub fn lose_replies(&self, loses: bool) {
        self.rule(|rules| rules.loses_replies = loses);
        if loses {
            self.drop_replies_silently();
        }
    }

    /// Loses all replies to the present connections until they are closed. New connections receive
    /// replies.
    pub fn drop_replies_silently(&self) {
        lock(&self.shared.links)
            .iter()
            .for_each(|link| link.drop_replies_silently());
    }

    /// Loses the next `number` replies, each with all later replies on the same connection. So the
    /// loss affects `number` connections. A reply here is one piece on a connection that still
    /// receives replies.
    pub fn drop_replies(&self, number: u64) {
        self.rule(|rules| rules.replies_to_drop = number);
    }

    /// Returns the traffic since the wire was made.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let counts = *lock(&self.shared.counts);
        let links = lock(&self.shared.links);

        Traffic {
            present: links.len() as u64,
            waiting_to_server: links.iter().map(|link| link.waiting().0).sum(),
            waiting_to_client: links.iter().map(|link| link.waiting().1).sum(),
            ..counts
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
        // This wakes the acceptor. It fails only if the acceptor has already ended, which is the
        // aim.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        if let Some(acceptor) = self.acceptor.take() {
            // If the acceptor panicked, its panic was already printed, and a drop must not panic.
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
                Err(e) => panic!("a wire cannot accept connections: {e}"),
            }
        }
    }

    fn take(self: &Arc<Self>, client: TcpStream) {
        if self.rules().refuses {
            lock(&self.counts).refused += 1;
            return close_hard(&client);
        }
        lock(&self.counts).connections += 1;
        let link = Arc::new(Link::new(self.clone(), client));
        lock(&self.links).push(link.clone());
        start("wire up", move || link.run());
    }

    /// Connects to the service once the wire is not frozen. Returns early if the wire or the link
    /// is closed.
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

    /// Wakes the threads that wait for a thaw, so that they check the rules again.
    fn wake(&self) {
        // The lock prevents a missed notification. A thread has either observed the change, or
        // already waits.
        let _rules = self.rules();
        self.rules_changed.notify_all();
    }

    fn forget(&self, link: &Link) {
        lock(&self.links).retain(|other| !std::ptr::eq(other.as_ref(), link));
    }
}

/// Closes a connection with a reset, so that the peer does not observe an orderly end. The kernel
/// sends the reset once the last user drops the stream.
fn close_hard(stream: &TcpStream) {
    // Both calls fail only if the peer closed the connection first.
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
    let _ = stream.shutdown(Shutdown::Both);
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    thread::Builder::new()
        .name(name.into())
        .spawn(work)
        .expect("a thread can be started")
}

/// Locks a mutex and ignores poisoning, because a panicking thread of a wire leaves its data
/// consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn address_of(server: impl ToSocketAddrs) -> SocketAddr {
    let mut found = server.to_socket_addrs().into_iter().flatten();
    found.next().expect("the service has an address")
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("the delay fits into 64 bits")
}
