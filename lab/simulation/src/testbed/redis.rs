//! The servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lab_redis_model::{Host, Reply, Restart};
use tokio::sync::watch;

use super::wire::Rules;
use super::{Listener, Testbed};

/// A server that executes the real scripts.
#[derive(Debug)]
pub struct Redis {
    server: Arc<ServedHost>,
    name: String,
}

/// The state of a server, which its connections share.
#[derive(Debug)]
pub(super) struct ServedHost {
    pub(super) host: Arc<Host>,
    is_paused: watch::Sender<bool>,
    /// The number of requests of clients.
    pub(super) received: AtomicU64,
}

impl Redis {
    /// Starts a server.
    #[must_use]
    pub fn start() -> Self {
        let testbed = Testbed::current();
        let number = testbed.state.lock().listeners.len();
        let name = format!("redis-{number}");
        Self::of(Host::start(&format!("{number:0>10}{:0>30}", "")), &name)
    }

    /// Lets clients reach a server under this host name.
    #[must_use]
    pub fn of(host: Arc<Host>, name: &str) -> Self {
        let server = Arc::new(ServedHost {
            host,
            is_paused: watch::Sender::new(false),
            received: AtomicU64::new(0),
        });

        let listener = Listener {
            server: Arc::clone(&server),
            rules: Arc::new(Rules::default()),
        };
        Testbed::current().listen(name, listener);
        Self {
            server,
            name: name.to_owned(),
        }
    }

    /// Returns the URL for clients.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.name)
    }

    /// Returns the host name.
    #[must_use]
    pub fn address(&self) -> String {
        self.name.clone()
    }

    /// Kills the server. It refuses connections.
    pub fn kill(&mut self) {
        self.server.host.stop();
    }

    /// Restarts the server, with its data or without.
    pub fn restart(&mut self, restart: Restart) {
        self.server.host.restart(restart);
    }

    /// Pauses the server. It accepts connections, and sends no replies.
    pub fn pause(&self) {
        self.server.is_paused.send_replace(true);
    }

    /// Resumes the server after [`pause`](Self::pause).
    pub fn resume(&self) {
        self.server.is_paused.send_replace(false);
    }

    /// Returns how many requests of clients the server has received.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.server.received.load(Ordering::Relaxed)
    }

    /// Executes a request that comes over no connection.
    ///
    /// # Panics
    /// If the server refuses the request.
    #[allow(
        clippy::must_use_candidate,
        reason = "most requests are sent for their effect"
    )]
    pub fn command(&self, words: &[&str]) -> Reply {
        let reply = self.server.host.request(words);
        assert!(!matches!(reply, Reply::Error(_)), "{words:?}: {reply:?}");
        reply
    }
}

impl ServedHost {
    /// Waits until the server is not paused.
    pub(super) async fn runs(&self) {
        let mut is_paused = self.is_paused.subscribe();
        // The server keeps the sender.
        let _ = is_paused.wait_for(|is_paused| !is_paused).await;
    }
}
