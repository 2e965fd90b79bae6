//! The keyspace notifications of one server.
//!
//! A server publishes them if `notify-keyspace-events` contains `K` and `g`, and `x` for leases
//! that end. Other libraries do not publish a release, so without these notifications all waiters
//! poll the server. With them, a waiter observes a release at once, and polls less often.
//!
//! The lock does not depend on them. Each connection tests once whether they arrive, by deleting a
//! key.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::timeout;

use crate::Result;
use crate::runtime::background;
use crate::stores::redis_client::{self, Session};

/// How long after the reply a notification may arrive. With RESP2 it arrives on a second
/// connection.
const NOTIFICATION_MAX: Duration = Duration::from_millis(20);

/// The notifications of one database.
#[derive(Debug)]
pub(super) struct Events {
    /// The channel of a key is this prefix followed by the key.
    prefix: String,
    /// The key that is deleted to test the notifications.
    test_key: String,
    is_test_received: AtomicBool,
    test_received: Notify,
    /// The number of listeners of each channel.
    listeners: Mutex<HashMap<String, usize>>,
    /// The last test. The mutex is held while a channel is joined or left, so that these requests
    /// do not overlap.
    tested: AsyncMutex<Tested>,
}

/// The result of a test.
#[derive(Debug, Default)]
struct Tested {
    /// The connection's epoch.
    epoch: u32,
    is_supported: bool,
}

/// Receives the notifications of one key until it is dropped.
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
            test_key: format!("leasehold:plain:events:{client}"),
            is_test_received: AtomicBool::new(false),
            test_received: Notify::new(),
            listeners: Mutex::default(),
            tested: AsyncMutex::default(),
        }
    }

    /// Whether a channel carries keyspace notifications.
    pub(super) fn is_event(&self, channel: &str) -> bool {
        channel.starts_with(&self.prefix)
    }

    /// Returns the key that is free now, if the notification reports one.
    pub(super) fn freed<'a>(&self, channel: &'a str, event: &str) -> Option<&'a str> {
        let key = channel.strip_prefix(&self.prefix)?;
        if !matches!(event, "del" | "expired") {
            return None;
        }
        if key == self.test_key {
            self.is_test_received.store(true, Ordering::Release);
            self.test_received.notify_one();
            return None;
        }
        Some(key)
    }

    /// Subscribes to a key. Returns `None` if the server publishes nothing, or the user may not
    /// subscribe.
    pub(super) async fn listen(
        self: &Arc<Self>,
        session: &Arc<Session>,
        key: &str,
    ) -> Option<Listening> {
        let mut tested = self.tested.lock().await;
        if tested.epoch != session.epoch {
            tested.epoch = session.epoch;
            tested.is_supported = self.is_supported(session).await;
            tracing::debug!(supported = tested.is_supported, "keyspace notifications");
        }
        if !tested.is_supported {
            return None;
        }

        let channel = format!("{}{key}", self.prefix);
        *self.listeners.lock().entry(channel.clone()).or_default() += 1;
        // From here on the channel is left when the value is dropped, even if the subscription
        // fails.
        let listening = Listening {
            events: Arc::clone(self),
            session: Arc::clone(session),
            channel,
        };
        let joined = session.listen(&listening.channel).await;
        joined.ok().map(|()| listening)
    }

    async fn is_supported(&self, session: &Session) -> bool {
        self.is_test_received.store(false, Ordering::Release);
        let channel = format!("{}{}", self.prefix, self.test_key);

        // A user without the permission polls instead.
        let is_supported = self.test(session, &channel).await.unwrap_or(false);
        // A failure closes the connection, which leaves the channel too.
        let _ = session.unsubscribe(&channel).await;
        is_supported
    }

    /// Writes and deletes the test key, and waits for the notification.
    async fn test(&self, session: &Session, channel: &str) -> Result<bool> {
        session.listen(channel).await?;
        let mut set = redis::cmd("SET");
        set.arg(&self.test_key).arg("").arg("PX").arg("1000");
        let mut del = redis::cmd("DEL");
        del.arg(&self.test_key);
        for request in [set, del] {
            let reply = session.send(&request).await;
            reply.map_err(redis_client::store_error)?;
        }

        session.ping().await?;
        if !self.is_test_received.load(Ordering::Acquire) {
            let _ = timeout(NOTIFICATION_MAX, self.test_received.notified()).await;
        }
        Ok(self.is_test_received.load(Ordering::Acquire))
    }

    fn remove_listener(&self, channel: &str) {
        let mut listeners = self.listeners.lock();
        if let Some(count) = listeners.get_mut(channel) {
            *count -= 1;
            if *count == 0 {
                listeners.remove(channel);
            }
        }
    }

    /// Leaves a channel that has no listener any more.
    async fn leave(&self, session: &Session, channel: &str) {
        let _one_after_another = self.tested.lock().await;
        if !self.listeners.lock().contains_key(channel) {
            // A failure closes the connection, which leaves the channel too.
            let _ = session.unsubscribe(channel).await;
        }
    }
}

impl Listening {
    /// Whether the connection of this subscription is open.
    pub(super) fn is_open(&self) -> bool {
        !self.session.is_closed()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.events.remove_listener(&self.channel);
        let events = Arc::clone(&self.events);
        let session = Arc::clone(&self.session);
        let channel = self.channel.clone();
        background::spawn(async move { events.leave(&session, &channel).await });
    }
}
