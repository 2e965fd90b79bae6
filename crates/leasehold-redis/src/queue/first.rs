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
use tokio::time::timeout;

use super::Redis;
use super::claims::{ClaimValidity, Claims, TrackedClaim};
use super::layout;
use super::messages::{
    EnterMode, EnterRequest, LATE_MAX, LeaveArgument, NOT_AFTER, Nonces, Part, Sent, may_add_later,
};
use super::record::{self, CrashCheck, LivenessRef, LockKey, NO_SERVER};
use super::scripts;
use crate::builder::connect_by;
use crate::client;
use crate::client::{
    ReplyText, Session, Settings, Topology, Value, decode, fresh_client, id_text, no_reply,
    protocol_error,
};
use leasehold_core::internal::{BootInstant, FirstClaim, OpenEntering, background};
use leasehold_core::store::{Claim, Store};
use leasehold_core::{ClaimId, Error, Result};

/// The epoch of the first connection. No later one sends the request.
const FIRST_EPOCH: u32 = 1;

/// Opens the store of one server at a time, and enters a claim.
pub(crate) struct Opener(pub(crate) Topology);

#[async_trait]
impl OpenEntering for Opener {
    async fn open(&self, runtime: Option<Handle>, first: FirstClaim) -> Result<Arc<dyn Store>> {
        let claim = first.claim.clone();
        let may_be_there = Arc::clone(&first.may_be_there);
        let opening = Redis::open_entering(self.0.clone(), runtime, Some(first));
        match connect_by(opening).await {
            Ok(store) => Ok(Arc::new(store)),
            Err(error) => {
                if may_be_there.load(Ordering::Acquire) {
                    background::spawn(leave_late(Self(self.0.clone()), claim));
                }
                Err(error)
            }
        }
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

/// Leaves once more when the server can no longer execute the request to enter. No store does so,
/// because the opening has failed.
async fn leave_late(opener: Opener, claim: Claim) {
    tokio::time::sleep(LATE_MAX).await;
    let left = timeout(LEAVE_MAX, opener.leave(&claim)).await;
    let left = left.unwrap_or_else(|_| Err(no_reply()));
    if let Err(error) = left {
        tracing::debug!(name = %claim.name, %error, "a claim may be left; it ends with its lease");
    }
}

/// How long the server has to accept a connection and the login, and to reply. A server may accept
/// connections and never reply, and each failed opening begins one more.
const LEAVE_MAX: Duration = Duration::from_secs(10);

/// The first claim, and the reply to its request.
///
/// The claim is tracked before the request is sent, because its grant may arrive before the store is
/// open.
#[derive(Debug)]
pub(super) struct FirstEnter {
    first: FirstClaim,
    /// `None` if the claim is kept for its lease.
    grace: Option<Duration>,
    tracked: Arc<TrackedClaim>,
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
    pub(super) fn new(first: FirstClaim, settings: Settings, claims: &Claims) -> Option<Arc<Self>> {
        if settings.failover_wait.is_some() {
            return None;
        }
        let claim = &first.claim;
        let grace = settings
            .crash_grace
            .filter(|grace| claim.auto_renew && *grace < claim.lease);
        let tracked = claims.begin(claim, ClaimValidity::new(claim.lease, grace));
        Some(Arc::new(Self {
            first,
            grace,
            tracked,
            state: Mutex::default(),
        }))
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
        self.tracked.may_be_late(sent.at.saturating_add(LATE_MAX));
        let reply = self.run(session, client, channel).await;
        *self.state.lock() = match reply {
            Ok(reply) => {
                self.tracked.is_answered();
                FirstState::Replied(FirstReply { reply, sent })
            }
            Err(error) => {
                tracing::debug!(name = %claim.name, %error, "the claim was not entered at the start");
                if !may_add_later(&error) || is_refused_unread(&error) {
                    self.tracked.is_answered();
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
            expired: Vec::new(),
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

    /// Notes that the checks have found no crash detection.
    pub(super) fn without_crash_detection(&self) {
        self.tracked.without_grace();
    }

    /// Takes the reply about this claim.
    ///
    /// A store without crash detection enters the claim again: the script may have bound it to the
    /// connection, although the checks did not.
    pub(super) fn take(&self, id: ClaimId, crash_grace: Option<Duration>) -> Option<FirstReply> {
        if self.first.claim.id != id {
            return None;
        }
        let state = std::mem::replace(&mut *self.state.lock(), FirstState::Done);
        match state {
            FirstState::Replied(reply) if self.grace.is_none() || crash_grace.is_some() => {
                Some(reply)
            }
            _ => None,
        }
    }
}

/// Whether the server has not even read the keys of the request: it loads its data, or executes
/// another script.
fn is_refused_unread(error: &Error) -> bool {
    ["LOADING", "BUSY"]
        .iter()
        .any(|code| client::detail(error, code).is_some())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use leasehold_core::Name;
    use leasehold_core::store::{Share, claimant_here};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn departure_from_a_server_that_never_replies_ends() {
        let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("redis://{}", silent.local_addr().expect("it is bound"));
        let opener = Opener(Topology::parse(&url).expect("a URL"));
        let name = Name::parse("a").expect("a name");
        let info = claimant_here("").expect("a label");
        let claim = Claim::new(name, Share::MUTEX, Arc::new(info));

        let ended = timeout(LEAVE_MAX + LATE_MAX * 2, leave_late(opener, claim)).await;
        ended.expect("the connection is given up");
    }
}
