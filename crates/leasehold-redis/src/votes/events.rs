//! The keyspace notifications of one server.
//!
//! A server publishes them if `notify-keyspace-events` contains `K` and `g`, and `x` for leases
//! that end. Other libraries do not publish a release, so without these notifications all waiters
//! poll the server. With them, a waiter observes a release at once, and polls less often.
//!
//! The lock does not depend on them. Each connection tests once whether they arrive, by deleting a
//! key.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;

use crate::client::{ChannelSubscription, Channels, READ_TIMEOUT, Session, command};
use leasehold_core::Result;

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
    channels: Arc<Channels>,
    /// The last test.
    tested: AsyncMutex<Tested>,
}

/// The result of a test.
#[derive(Debug, Default)]
struct Tested {
    /// The connection's epoch.
    epoch: u32,
    is_supported: bool,
}

impl Events {
    pub(super) fn of(database: i64, client: &str) -> Self {
        Self {
            prefix: format!("__keyspace@{database}__:"),
            test_key: format!("leasehold:plain:events:{client}"),
            channels: Arc::default(),
            tested: AsyncMutex::default(),
        }
    }

    /// Whether a channel carries keyspace notifications.
    pub(super) fn is_event(&self, channel: &str) -> bool {
        channel.starts_with(&self.prefix)
    }

    /// Returns the key that is free now, if the notification reports one.
    pub(super) fn freed<'a>(&self, channel: &'a str, event: &str) -> Option<&'a str> {
        if !matches!(event, "del" | "expired") {
            return None;
        }
        self.channels.notify(channel);
        channel.strip_prefix(&self.prefix)
    }

    /// Subscribes to a key. Returns `None` if the server publishes nothing, or the user may not
    /// subscribe.
    pub(super) async fn listen(
        &self,
        session: &Arc<Session>,
        key: &str,
    ) -> Option<ChannelSubscription> {
        if !self.is_supported(session).await {
            return None;
        }
        let channel = self.channel(key);
        let joined = self.channels.listen(session, &channel, READ_TIMEOUT).await;
        joined.ok()
    }

    /// Whether the notifications arrive on a connection. Each connection is tested once.
    async fn is_supported(&self, session: &Arc<Session>) -> bool {
        let mut tested = self.tested.lock().await;
        if tested.epoch != session.epoch {
            tested.epoch = session.epoch;
            // A user without the permission polls instead.
            tested.is_supported = self.test(session).await.unwrap_or(false);
            tracing::debug!(supported = tested.is_supported, "keyspace notifications");
        }
        tested.is_supported
    }

    /// Writes and deletes the test key, and waits for the notification.
    async fn test(&self, session: &Arc<Session>) -> Result<bool> {
        let channel = self.channel(&self.test_key);
        let listening = self
            .channels
            .listen(session, &channel, READ_TIMEOUT)
            .await?;
        let mut notified = pin!(listening.message.notified());
        notified.as_mut().enable();

        let mut set = command("SET");
        set.arg(&self.test_key).arg("").arg("PX").arg("1000");
        let mut del = command("DEL");
        del.arg(&self.test_key);
        for request in [set, del] {
            session.request::<()>(&request).await?;
        }

        session.ping().await?;
        Ok(timeout(NOTIFICATION_MAX, notified).await.is_ok())
    }

    fn channel(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }
}
