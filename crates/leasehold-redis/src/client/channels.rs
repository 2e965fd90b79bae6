//! The channels on which releases are published, by clients or by the server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify};

use crate::client::{READ_TIMEOUT, Session, with_reply_timeout};
use leasehold_core::Result;
use leasehold_core::internal::background;

/// The channels to which this client listens.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    by_name: Mutex<BTreeMap<String, Channel>>,
    /// Held while a channel is joined or left, so that these requests do not overlap.
    joining: AsyncMutex<()>,
}

#[derive(Debug, Default)]
struct Channel {
    listeners: usize,
    message: Arc<Notify>,
}

/// Receives the messages of one channel until it is dropped.
#[derive(Debug)]
pub(crate) struct ChannelSubscription {
    channels: Arc<Channels>,
    session: Arc<Session>,
    name: String,
    /// Notified of each message.
    pub(crate) message: Arc<Notify>,
}

impl Channels {
    /// Wakes the listeners of a channel.
    pub(crate) fn notify(&self, name: &str) {
        if let Some(channel) = self.by_name.lock().get(name) {
            channel.message.notify_waiters();
        }
    }

    /// Subscribes to a channel; returns when the server has confirmed the subscription.
    pub(crate) async fn listen(
        self: &Arc<Self>,
        session: &Arc<Session>,
        name: &str,
        timeout: Duration,
    ) -> Result<ChannelSubscription> {
        // From here on the channel is left when the value is dropped, even if the subscription
        // fails.
        let listening = self.add_listener(Arc::clone(session), name);

        let _one_after_another = self.joining.lock().await;
        let joining = listening.session.listen(name);
        with_reply_timeout(&listening.session, timeout, joining).await?;
        Ok(listening)
    }

    fn add_listener(self: &Arc<Self>, session: Arc<Session>, name: &str) -> ChannelSubscription {
        let mut by_name = self.by_name.lock();
        let channel = by_name.entry(name.to_owned()).or_default();
        channel.listeners += 1;
        ChannelSubscription {
            channels: Arc::clone(self),
            session,
            name: name.to_owned(),
            message: Arc::clone(&channel.message),
        }
    }

    fn remove_listener(&self, name: &str) {
        let mut by_name = self.by_name.lock();
        if let Some(channel) = by_name.get_mut(name) {
            channel.listeners -= 1;
            if channel.listeners == 0 {
                by_name.remove(name);
            }
        }
    }

    /// Leaves a channel that has no listener any more.
    async fn leave(&self, session: &Session, name: &str) {
        let _one_after_another = self.joining.lock().await;
        if !self.by_name.lock().contains_key(name) {
            // A failure closes the connection, which leaves the channel too.
            let leaving = session.unsubscribe(name);
            let _ = with_reply_timeout(session, READ_TIMEOUT, leaving).await;
        }
    }
}

impl ChannelSubscription {
    /// Whether the connection of this subscription is open.
    pub(crate) fn is_open(&self) -> bool {
        !self.session.is_closed()
    }

    /// Waits until the connection is closed: messages may be lost from then on.
    pub(crate) async fn closed(&self) {
        self.session.closed_signal().await;
    }
}

impl Drop for ChannelSubscription {
    fn drop(&mut self) {
        self.channels.remove_listener(&self.name);
        let channels = Arc::clone(&self.channels);
        let session = Arc::clone(&self.session);
        let name = std::mem::take(&mut self.name);
        background::spawn(async move { channels.leave(&session, &name).await });
    }
}
