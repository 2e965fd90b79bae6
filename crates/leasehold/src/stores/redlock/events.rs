//! What a server itself tells of a key, where it is set up to: `notify-keyspace-events` with `K` and `g`, and `x` for leases that end.
//!
//! Other libraries give a lock back and tell nobody; their waiters ask again and again, and so do ours. With events they hear of it,
//! and ask less often. Nothing depends on them: whether they come is tried out once on each connection, by deleting a key.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::timeout;

use crate::Result;
use crate::runtime::background;
use crate::stores::redis_client::Session;

/// Events of one server's database.
#[derive(Debug)]
pub(super) struct Events {
    /// A key's channel is this, and the key.
    prefix: String,
    /// A key that is deleted to hear of it.
    trial: String,
    has_pushed: AtomicBool,
    pushed: Notify,
    /// How many listen to each channel.
    listeners: Mutex<HashMap<String, usize>>,
    /// The connection that was last tried, and whether it tells. Held while a channel is joined or left: one after another.
    tried: AsyncMutex<(u32, bool)>,
}

/// Hears the events of one key until it is dropped.
#[derive(Debug)]
pub(super) struct Listening {
    events: Arc<Events>,
    session: Arc<Session>,
    channel: String,
}

impl Events {
    pub(super) fn of(database: i64, client: &str) -> Self {
        Self {
            prefix: format!("__keyspace@{database}__:"),
            trial: format!("leasehold:plain:events:{client}"),
            has_pushed: AtomicBool::new(false),
            pushed: Notify::new(),
            listeners: Mutex::default(),
            tried: AsyncMutex::new((0, false)),
        }
    }

    /// The key that is free now, if this is an event that says so.
    pub(super) fn freed<'a>(&self, channel: &'a str, event: &str) -> Option<&'a str> {
        let key = channel
            .strip_prefix(&self.prefix)
            .filter(|_| matches!(event, "del" | "expired"))?;
        if key == self.trial {
            self.has_pushed.store(true, Ordering::Release);
            self.pushed.notify_one();
            return None;
        }
        Some(key)
    }

    /// Whether a channel is one of events.
    pub(super) fn is_theirs(&self, channel: &str) -> bool {
        channel.starts_with(&self.prefix)
    }

    /// `None` where the server tells nothing, or may not be listened to.
    pub(super) async fn listen(
        self: &Arc<Self>,
        session: &Arc<Session>,
        key: &str,
    ) -> Option<Listening> {
        let mut tried = self.tried.lock().await;
        if tried.0 != session.epoch {
            *tried = (session.epoch, self.supports_events(session).await);
            tracing::debug!(tells = tried.1, "events of keys");
        }
        if !tried.1 {
            return None;
        }
        let channel = format!("{}{key}", self.prefix);
        *self.listeners.lock().entry(channel.clone()).or_default() += 1;
        // From here on it is left again, whatever comes of joining it.
        let listening = Listening {
            events: Arc::clone(self),
            session: Arc::clone(session),
            channel,
        };
        session
            .listen(&listening.channel)
            .await
            .ok()
            .map(|()| listening)
    }

    async fn supports_events(&self, session: &Session) -> bool {
        self.has_pushed.store(false, Ordering::Release);
        let channel = format!("{}{}", self.prefix, self.trial);
        // Denied or not, it is no error: then nobody listens.
        let supported = self.try_out(session, &channel).await.unwrap_or(false);
        let _ = session.unsubscribe(&channel).await;
        supported
    }

    async fn try_out(&self, session: &Session, channel: &str) -> Result<bool> {
        /// With two connections, what was told may come a little after the answer.
        const MARGIN: Duration = Duration::from_millis(20);
        session.listen(channel).await?;
        for request in [
            redis::cmd("SET")
                .arg(&self.trial)
                .arg("")
                .arg("PX")
                .arg("1000"),
            redis::cmd("DEL").arg(&self.trial),
        ] {
            session
                .send(request)
                .await
                .map_err(crate::stores::redis_client::store_error)?;
        }
        session.ping().await?;
        if !self.has_pushed.load(Ordering::Acquire) {
            let _ = timeout(MARGIN, self.pushed.notified()).await;
        }
        Ok(self.has_pushed.load(Ordering::Acquire))
    }

    fn stop(&self, channel: &str) {
        let mut listeners = self.listeners.lock();
        if let Some(tally) = listeners.get_mut(channel) {
            *tally -= 1;
            if *tally == 0 {
                listeners.remove(channel);
            }
        }
    }

    /// Leaves a channel that nobody listens to any more.
    async fn leave(&self, session: &Session, channel: &str) {
        let _one_after_another = self.tried.lock().await;
        if !self.listeners.lock().contains_key(channel) {
            // A connection that breaks has left it.
            let _ = session.unsubscribe(channel).await;
        }
    }
}

impl Listening {
    /// Whether what happens now is still heard.
    pub(super) fn is_open(&self) -> bool {
        !self.session.is_closed()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.events.stop(&self.channel);
        let (events, session, channel) = (
            Arc::clone(&self.events),
            Arc::clone(&self.session),
            self.channel.clone(),
        );
        background::handle().spawn(async move { events.leave(&session, &channel).await });
    }
}
