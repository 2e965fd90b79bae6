//! The wires between clients and servers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{DuplexStream, duplex};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::sleep;

use super::{Listener, Testbed};

/// A wire in front of a server, which can delay, cut or lose what passes through it.
#[derive(Debug)]
pub struct Wire {
    rules: Arc<Rules>,
    name: String,
}

/// What a wire does to the bytes.
#[derive(Debug)]
pub(super) struct Rules(watch::Sender<Rule>);

#[derive(Clone, Copy, Debug, Default)]
struct Rule {
    delay: Duration,
    refuses: bool,
    holds_replies: bool,
    replies_to_drop: u64,
    requests_to_drop: u64,
    /// How often the connections were cut.
    cuts: u64,
}

impl Wire {
    /// Makes a wire to a server.
    ///
    /// # Panics
    /// If no server has this address.
    #[must_use]
    pub fn to(address: impl AsRef<str>) -> Self {
        let testbed = Testbed::current();
        let server = testbed.listener(address.as_ref()).expect("a server").server;
        let rules = Arc::new(Rules::default());
        let listener = Listener {
            server,
            rules: Arc::clone(&rules),
        };
        let name = format!("wire-{}", testbed.state.lock().listeners.len());
        testbed.listen(&name, listener);
        Self { rules, name }
    }

    /// Returns the URL for clients.
    #[must_use]
    pub fn url_of(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.name)
    }

    /// Leads new connections to another server. Present connections stay open.
    ///
    /// # Panics
    /// If no server has this address.
    pub fn lead_to(&self, address: impl AsRef<str>) {
        let testbed = Testbed::current();
        let server = testbed.listener(address.as_ref()).expect("a server").server;
        let mut state = testbed.state.lock();
        let listener = state.listeners.get_mut(&self.name);
        listener.expect("a wire listens").server = server;
    }

    /// Delays each message by `delay`, in each direction.
    pub fn delay(&self, delay: Duration) {
        self.rules.delay(delay);
    }

    /// Closes new connections at once. Present connections stay open.
    pub fn refuse(&self, refuses: bool) {
        self.rules.0.send_modify(|rule| rule.refuses = refuses);
    }

    /// Cuts all present connections in both directions. Bytes in flight are lost.
    pub fn partition(&self) {
        self.rules.0.send_modify(|rule| rule.cuts += 1);
    }

    /// Holds all replies, and delivers them when the hold ends.
    pub fn hold_replies(&self, holds: bool) {
        self.rules.0.send_modify(|rule| rule.holds_replies = holds);
    }

    /// Loses the next `number` replies, each with all later replies on the same connection.
    pub fn drop_replies(&self, number: u64) {
        self.rules
            .0
            .send_modify(|rule| rule.replies_to_drop = number);
    }

    /// Loses the next `number` requests: each breaks its connection before it is executed.
    pub fn drop_requests(&self, number: u64) {
        self.rules
            .0
            .send_modify(|rule| rule.requests_to_drop = number);
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self(watch::Sender::new(Rule::default()))
    }
}

impl Rules {
    pub(super) fn delay(&self, delay: Duration) {
        self.0.send_modify(|rule| rule.delay = delay);
    }

    /// Waits until the wire cuts the connections that are open now.
    async fn cut(&self) {
        let mut rule = self.0.subscribe();
        let cuts = rule.borrow().cuts;
        // The link keeps the sender.
        let _ = rule.wait_for(|rule| rule.cuts != cuts).await;
    }

    /// Counts down one of the messages to be dropped; returns whether this one is.
    fn drops(&self, count: impl Fn(&mut Rule) -> &mut u64) -> bool {
        let mut is_dropped = false;
        self.0.send_modify(|rule| {
            let left = count(rule);
            is_dropped = *left > 0;
            *left = left.saturating_sub(1);
        });
        is_dropped
    }
}

impl Listener {
    /// Opens a connection of a client.
    pub(super) fn connect(&self, runtime: &Handle) -> io::Result<DuplexStream> {
        let runs = self.server.host.is_running();
        if !runs || self.rules.0.borrow().refuses {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }

        let (client, server) = duplex(64 * 1024);
        let link = WireLink {
            listener: self.clone(),
            is_deaf: false,
        };
        let listener = self.clone();
        runtime.spawn(async move {
            tokio::select! {
                biased;
                () = listener.rules.cut() => {}
                // The connection has ended, however it did.
                _ = listener.server.host.serve(server, link) => {}
            }
        });
        Ok(client)
    }
}

/// One connection through a wire.
struct WireLink {
    listener: Listener,
    /// Whether its client receives nothing more.
    is_deaf: bool,
}

impl lab_redis_model::Wire for WireLink {
    async fn before(&mut self) -> io::Result<()> {
        let Listener { server, rules } = &self.listener;
        if rules.drops(|rule| &mut rule.requests_to_drop) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }

        let delay = rules.0.borrow().delay;
        sleep(LATENCY + delay).await;
        server.runs().await;
        server.received.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn pass(&mut self, sent: &mut Vec<u8>) -> io::Result<()> {
        let rules = &self.listener.rules;
        self.is_deaf |= rules.drops(|rule| &mut rule.replies_to_drop);

        let mut rule = rules.0.subscribe();
        // The listener keeps the sender.
        let _ = rule.wait_for(|rule| !rule.holds_replies).await;
        let delay = rules.0.borrow().delay;
        sleep(LATENCY + delay).await;

        if self.is_deaf {
            sent.clear();
        }
        Ok(())
    }
}

/// How long a message takes. The timers of tokio round it to a millisecond.
const LATENCY: Duration = Duration::from_micros(100);
