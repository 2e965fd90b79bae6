//! The servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lab_redis_model::{Host, Reply};
use tokio::sync::watch;

use super::wire::Rules;
use super::{Listener, Testbed};

/// A server that executes the real scripts.
#[derive(Debug)]
pub struct Redis {
    pub(super) server: Arc<Server>,
    name: String,
}

/// The state of a server, which its connections share.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) host: Arc<Host>,
    pub(super) power: watch::Sender<Power>,
    /// The number of requests of clients.
    pub(super) received: AtomicU64,
}

/// Whether a server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Power {
    Runs,
    Paused,
    Killed,
}

impl Redis {
    /// Starts a server.
    #[must_use]
    pub fn start() -> Self {
        let testbed = Testbed::current();
        let history = format!("{:0>40}", testbed.state.lock().listeners.len());
        let server = Arc::new(Server {
            host: Host::start(&history),
            power: watch::Sender::new(Power::Runs),
            received: AtomicU64::new(0),
        });

        let listener = Listener {
            server: Arc::clone(&server),
            rules: Arc::new(Rules::default()),
        };
        let name = testbed.listen("redis", listener);
        Self { server, name }
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
        self.server.power.send_replace(Power::Killed);
    }

    /// Pauses the server. It accepts connections, and sends no replies.
    pub fn pause(&self) {
        self.server.power.send_replace(Power::Paused);
    }

    /// Resumes the server after [`pause`](Self::pause).
    pub fn resume(&self) {
        self.server.power.send_replace(Power::Runs);
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
    pub fn command(&self, words: &[&str]) -> Reply {
        let reply = self.server.host.request(words);
        assert!(!matches!(reply, Reply::Error(_)), "{words:?}: {reply:?}");
        reply
    }
}

impl Server {
    /// Waits until the server is not paused.
    pub(super) async fn runs(&self) {
        let mut power = self.power.subscribe();
        // The server keeps the sender.
        let _ = power.wait_for(|power| *power != Power::Paused).await;
    }

    pub(super) async fn killed(&self) {
        let mut power = self.power.subscribe();
        // The server keeps the sender.
        let _ = power.wait_for(|power| *power == Power::Killed).await;
    }
}
