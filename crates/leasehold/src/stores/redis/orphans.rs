//! Claims that a late request of this client has left in a queue, without a caller.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::leave::leave_arguments;
use super::scripts;
use crate::runtime::background;
use crate::runtime::clock::BootInstant;
use crate::stores::redis_client::{Session, State, with_reply_timeout};
use crate::{Error, Result};

/// How often the client tries to release an orphan. After that, the orphan ends with its lease.
const TRIES: u32 = 5;
/// How long each try takes.
const TRY_MAX: Duration = Duration::from_secs(5);

/// Releases orphans on the background link.
#[derive(Clone, Debug)]
pub(super) struct Orphans {
    states: watch::Receiver<State>,
    client: Arc<str>,
    longest_lease: Option<Arc<str>>,
}

/// A claim of this client whose id no caller uses, now or later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Orphan {
    pub(super) key: String,
    pub(super) id: String,
}

impl Orphans {
    pub(super) fn new(
        states: watch::Receiver<State>,
        client: Arc<str>,
        longest_lease: Option<Arc<str>>,
    ) -> Self {
        Self {
            states,
            client,
            longest_lease,
        }
    }

    /// Removes the claim from the queue at `due`, when no earlier request can add it again.
    pub(super) fn release(&self, orphan: Orphan, due: BootInstant) {
        let orphans = self.clone();
        background::handle().spawn(async move {
            tokio::time::sleep(due.duration_since(BootInstant::now())).await;
            orphans.try_release(&orphan).await;
        });
    }

    async fn try_release(mut self, orphan: &Orphan) {
        for _ in 0..TRIES {
            match timeout(TRY_MAX, self.leave(orphan)).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => {
                    let key = &orphan.key;
                    tracing::debug!(key, %error, "cannot release an orphaned claim yet");
                }
                Err(_) => tracing::debug!(
                    key = orphan.key,
                    "no connection to release an orphaned claim yet"
                ),
            }
            tokio::time::sleep(TRY_MAX / 10).await;
        }

        tracing::warn!(
            key = orphan.key,
            "gave up releasing an orphaned claim; it ends with its lease"
        );
    }

    async fn leave(&mut self, orphan: &Orphan) -> Result<()> {
        let session = self.session().await?;

        let whose = format!("H{}", orphan.id);
        let keys = [orphan.key.as_str()];
        let arguments = leave_arguments(&whose, &self.client, self.longest_lease.as_deref());
        let leaving = scripts::LEAVE.run(&session, &keys, &arguments);
        with_reply_timeout(&session, TRY_MAX, leaving)
            .await
            .map(drop)
    }

    async fn session(&mut self) -> Result<Arc<Session>> {
        let is_up = |state: &State| matches!(state, State::Up(session, _) if !session.is_closed());
        let state = self.states.wait_for(is_up).await;
        match state.as_deref() {
            Ok(State::Up(session, _)) => Ok(Arc::clone(session)),
            _ => Err(Error::unavailable("the store was closed")),
        }
    }
}
