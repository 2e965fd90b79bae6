//! The first claim of a client, which is entered behind the checks of its first connection.
//!
//! The request is sent without the replies to the checks, so it differs from the others: the script
//! itself reads the server that the claim is bound to, and the time until which the server may
//! execute it is that of this machine. A server whose clock is more than five seconds ahead refuses
//! it as late. The store then enters the same claim again, as after any other error.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::Redis;
use super::layout;
use super::messages::{
    EnterMode, EnterRequest, LeaveArgument, NOT_AFTER, Nonces, Part, Sent, may_add_later,
};
use super::record::{self, CrashCheck, LivenessRef, LockKey, NO_SERVER};
use super::scripts;
use crate::builder::connect_by;
use crate::client::{
    ReplyText, Session, Settings, Topology, Value, decode, fresh_client, id_text, protocol_error,
};
use leasehold_core::internal::{BootInstant, FirstClaim, OpenEntering};
use leasehold_core::store::{Claim, Store};
use leasehold_core::{ClaimId, Result};

/// The epoch of the first connection. No later one sends the request.
const FIRST_EPOCH: u32 = 1;

/// Opens the store of one server at a time, and enters a claim.
pub(crate) struct Opener(pub(crate) Topology);

#[async_trait]
impl OpenEntering for Opener {
    async fn open(&self, runtime: Option<Handle>, first: FirstClaim) -> Result<Arc<dyn Store>> {
        let topology = self.0.clone();
        let store = connect_by(Redis::open_entering(topology, runtime, Some(first))).await?;
        Ok(Arc::new(store))
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        let endpoint = self.0.clone().endpoint();
        let endpoint = endpoint.expect("a cluster is opened without a claim");
        let session = Session::open_unsubscribed(&endpoint.locate().await?).await?;

        let request = LeaveArgument {
            kind: 'H',
            id: id_text(claim.id),
        };
        let arguments: [Part<'_>; 2] = [&request, &fresh_client()];
        let keys = [LockKey(&claim.name)];
        let reply = scripts::LEAVE.run(&session, &keys, &arguments).await?;
        let reply: ReplyText = decode(reply)?;
        let was_there = reply
            .as_str()
            .and_then(|left| layout::leave_reply::WAS_THERE.read(left));
        was_there
            .map(|was_there| was_there == "1")
            .ok_or_else(protocol_error)
    }
}

/// The first claim, and the reply to its request.
#[derive(Debug)]
pub(super) struct FirstEnter {
    first: FirstClaim,
    /// `None` if the claim is kept for its lease.
    grace: Option<Duration>,
    state: Mutex<FirstState>,
}

/// ```text
/// Unsent ──reply──► Replied ──taken──► Done
///    └────────────error────────────────┘
/// ```
/// The handshake of a connection is repeated from time to time. After a reply of any kind it sends
/// nothing.
#[derive(Debug, Default)]
enum FirstState {
    #[default]
    Unsent,
    Replied(FirstReply),
    Done,
}

/// The reply to a request that has entered a claim, until the store takes it.
#[derive(Debug)]
pub(super) struct FirstReply {
    pub(super) reply: Value,
    pub(super) sent: Sent,
}

impl FirstEnter {
    /// Returns `None` for a store that waits after a failover: its connections note the longest
    /// lease first.
    pub(super) fn new(first: FirstClaim, settings: Settings) -> Option<Arc<Self>> {
        let claim = &first.claim;
        let grace = settings
            .crash_grace
            .filter(|grace| claim.auto_renew && *grace < claim.lease);
        settings.failover_wait.is_none().then(|| {
            Arc::new(Self {
                first,
                grace,
                state: Mutex::default(),
            })
        })
    }

    /// Sends the request over the first connection, which is subscribed to `channel`.
    ///
    /// The connection by another version of the protocol repeats it.
    pub(super) async fn send(&self, session: &Session, client: &Arc<str>, channel: &str) {
        let is_unsent = matches!(*self.state.lock(), FirstState::Unsent);
        if session.epoch != FIRST_EPOCH || !is_unsent {
            return;
        }

        let claim = &self.first.claim;
        let sent = Sent {
            at: BootInstant::now(),
            liveness_epoch: session.epoch,
            // A waiter asks again as soon as the caller link is connected.
            caller_epoch: 0,
        };
        self.first.may_be_there.store(true, Ordering::Release);
        let reply = self.run(session, client, channel).await;
        *self.state.lock() = match reply {
            Ok(reply) => FirstState::Replied(FirstReply { reply, sent }),
            Err(error) => {
                tracing::debug!(name = %claim.name, %error, "the claim was not entered at the start");
                if !may_add_later(&error) {
                    self.first.may_be_there.store(false, Ordering::Release);
                }
                FirstState::Done
            }
        };
    }

    async fn run(&self, session: &Session, client: &Arc<str>, channel: &str) -> Result<Value> {
        let claim = &self.first.claim;
        let crash_check = self.grace.map(|grace| CrashCheck {
            server: NO_SERVER.into(),
            grace,
        });
        let request = EnterRequest {
            claim,
            mode: EnterMode::of(self.first.on_contention),
            // The clock of the server replaces it.
            proposal: u64::from(claim.reserved == 0 && claim.share.is_whole()),
            highest_token: 0,
            liveness: LivenessRef {
                client: Arc::clone(client),
                epoch: session.epoch,
                crash_check,
            },
            nonce: Nonces::default().fresh(),
            expired: String::new(),
        };

        let record = request.record();
        let life = record::life(claim);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let not_after = (now.unwrap_or_default() + NOT_AFTER).as_secs();
        let unused = format!("{channel}:{}", fresh_client());
        let arguments: [Part<'_>; 6] = [&record, &life, &request, &not_after, &channel, &unused];
        let count = if self.grace.is_some() { 6 } else { 4 };
        let keys = [LockKey(&claim.name)];
        scripts::ENTER_FIRST
            .run(session, &keys, &arguments[..count])
            .await
    }

    /// Takes the reply about this claim.
    ///
    /// A store without crash detection enters the claim again: the script may have bound it to the
    /// connection, although the checks did not.
    pub(super) fn take(&self, id: ClaimId, crash_grace: Option<Duration>) -> Option<FirstReply> {
        // The first request of the store ends it: nothing is sent any more.
        let state = std::mem::replace(&mut *self.state.lock(), FirstState::Done);
        let FirstState::Replied(reply) = state else {
            return None;
        };
        let is_usable =
            self.first.claim.id == id && (self.grace.is_none() || crash_grace.is_some());
        is_usable.then_some(reply)
    }
}
