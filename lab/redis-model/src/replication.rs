//! The data of a master that have reached a replica.
//!
//! A replica has what its master had some time ago. What a master has not sent before it stops
//! never arrives.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::host::Host;
use crate::server::Server;

/// Whom a replica follows.
#[derive(Clone, Debug)]
pub(crate) struct Following {
    pub(crate) master: Arc<Host>,
    pub(crate) lag: Duration,
}

/// The states of a master that its replicas still receive.
#[derive(Debug, Default)]
pub(crate) struct Past {
    /// How long a state is kept; `None` if the server has no replica.
    kept: Option<Duration>,
    /// The states, each with the time at which it began.
    states: VecDeque<(Instant, Server)>,
}

impl Past {
    /// Keeps states for replicas with this lag too.
    pub(crate) fn keep(&mut self, lag: Duration, server: &Server) {
        self.kept = self.kept.max(Some(lag));
        self.note(server);
    }

    /// Notes the present state, and forgets what every replica has received.
    pub(crate) fn note(&mut self, server: &Server) {
        let Some(kept) = self.kept else {
            return;
        };
        let now = Instant::now();
        if self.states.back().is_none_or(|(_, last)| last != server) {
            self.states.push_back((now, server.clone()));
        }
        while self.states.get(1).is_some_and(|(at, _)| *at + kept <= now) {
            self.states.pop_front();
        }
    }

    /// Returns the state at a time. The first state is that of a full synchronisation.
    pub(crate) fn state(&self, time: Instant, lag: Duration) -> &Server {
        let arrived = self.states.iter().rfind(|(at, _)| *at + lag <= time);
        let state = arrived.or_else(|| self.states.front());
        &state.expect("a server that is followed keeps its states").1
    }
}
