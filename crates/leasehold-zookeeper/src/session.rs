//! One session with the servers, and until when it certainly exists.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use zookeeper_client::Client;

use super::liveness::{self, Liveness};
use leasehold_core::internal::{BootInstant, net};
use leasehold_core::{Error, Result};

/// One session. Its ephemeral nodes exist as long as it does.
#[derive(Debug)]
pub(super) struct Session {
    epoch: u32,
    pub(super) client: Client,
    /// Until when the session certainly exists.
    valid_until: watch::Sender<BootInstant>,
    /// Until when heartbeats are sent at the short interval of a holder. `None` until a claim of
    /// the session has been granted.
    held_until: watch::Sender<Option<BootInstant>>,
    /// An upper bound of half a tick of the servers, once it has been measured.
    half_tick: OnceLock<Duration>,
    /// Whether a server has shown a node that the other servers do not have.
    is_abandoned: watch::Sender<bool>,
}

impl Session {
    pub(super) fn new(epoch: u32, client: Client, liveness: &Liveness) -> Self {
        let session = Self {
            epoch,
            client,
            valid_until: watch::Sender::new(BootInstant::from_nanos(0)),
            held_until: watch::Sender::default(),
            half_tick: OnceLock::new(),
            is_abandoned: watch::Sender::default(),
        };

        session.confirm(liveness);
        session
    }

    pub(super) fn id(&self) -> i64 {
        self.client.session_id().0
    }

    /// Returns the timeout that the servers have agreed to.
    pub(super) fn timeout(&self) -> Duration {
        self.client.session_timeout()
    }

    /// Returns how long after `from` the session certainly exists.
    ///
    /// # Errors
    /// [`is_unavailable`](Error::is_unavailable) if the session may be over at `from`.
    pub(super) fn remaining(&self, from: BootInstant) -> Result<Duration> {
        let remaining = self.valid_until.borrow().duration_since(from);
        if remaining.is_zero() {
            return Err(unconfirmed());
        }
        Ok(remaining)
    }

    /// Waits until the session certainly exists for some more time, or is over.
    ///
    /// It usually returns at once. After an outage it takes one or two heartbeats.
    pub(super) async fn confirmed(&self) {
        let least = self.timeout() / 4;
        let mut valid_until = self.valid_until.subscribe();
        tokio::select! {
            _ = valid_until.wait_for(|until| is_after(*until, least)) => {}
            () = self.ended() => {}
        }
    }

    /// Records that a claim is held. Heartbeats are more frequent while claims are held and
    /// renewed.
    pub(super) fn note_holder(&self) {
        let now = BootInstant::now();
        // Holders renew at least once in a tenth of the session.
        let held_until = now.saturating_add(self.timeout() / 8);
        self.held_until.send_if_modified(|until| {
            let before = until.replace(held_until);
            before.is_none_or(|before| before <= now)
        });
    }

    /// Keeps the frequent heartbeats for a holder that renews, and waits for the next one.
    ///
    /// So a renewal extends the hold by the present remaining time of the session. The wait has a
    /// limit a little above the usual interval. After an outage the first confirmation is enough
    /// for the hold.
    pub(super) async fn next_confirmation(&self) {
        if self.held_until.borrow().is_none() {
            return;
        }

        let mut valid_until = self.valid_until.subscribe();
        self.note_holder();
        if is_after(*self.valid_until.borrow(), self.timeout() / 2) {
            // Without a new confirmation the session is valid until the end known so far.
            let _ = timeout(self.timeout() / 12, valid_until.changed()).await;
        }
    }

    pub(super) fn is_held(&self) -> bool {
        let held_until = *self.held_until.borrow();
        held_until.is_some_and(|until| BootInstant::now() < until)
    }

    /// Waits until the heartbeat after the last one of `liveness` is due.
    pub(super) async fn next_heartbeat(&self, liveness: &Liveness) {
        let mut held_until = self.held_until.subscribe();
        loop {
            let interval = liveness::heartbeat_interval(self.timeout(), self.is_held());
            let due = liveness.next_heartbeat(interval);
            tokio::select! {
                () = sleep(due.duration_since(BootInstant::now())) => return,
                _ = held_until.changed() => {}
            }
        }
    }

    /// Returns an upper bound of half a tick of the servers.
    pub(super) fn half_tick(&self) -> Duration {
        let bound = liveness::half_tick(self.timeout());
        let measured = self.half_tick.get();
        measured.map_or(bound, |measured| bound.min(*measured))
    }

    pub(super) fn has_measured_half_tick(&self) -> bool {
        self.half_tick.get().is_some()
    }

    pub(super) fn set_half_tick(&self, half_tick: Duration) {
        self.half_tick.get_or_init(|| half_tick);
    }

    pub(super) fn is_confirmed(&self) -> bool {
        is_after(*self.valid_until.borrow(), self.timeout() / 4)
    }

    /// Whether the servers have ended the session, or this client has abandoned it.
    pub(super) fn is_over(&self) -> bool {
        *self.is_abandoned.borrow() || self.client.state().is_terminated()
    }

    /// Waits until the session is over.
    pub(super) async fn ended(&self) {
        let mut states = self.client.state_watcher();
        let mut is_abandoned = self.is_abandoned.subscribe();
        while !self.is_over() {
            tokio::select! {
                _ = is_abandoned.changed() => {}
                _ = states.changed() => {}
            }
        }
    }

    /// Abandons the session because its server shows a node that the other servers do not have.
    ///
    /// The servers keep the session and its nodes until all local claims have ended and the client
    /// closes it. Then that server forgets the node too.
    pub(super) fn abandon(&self) -> Error {
        tracing::warn!(
            "a server shows nodes that the other servers do not have: \
             the client gives up its session and all its locks"
        );
        net::Session::close(self);
        Error::unavailable("a server shows nodes that the other servers do not have").help(
            "its data is damaged: stop that server, empty its data folder, and start it again",
        )
    }

    /// Whether the servers have ended the session: its timeout has passed twice since a heartbeat.
    pub(super) fn has_expired(&self) -> bool {
        let until = *self.valid_until.borrow();
        until.saturating_add(self.timeout()) < BootInstant::now()
    }

    /// Extends the time for which the session certainly exists, as far as `liveness` proves it.
    pub(super) fn confirm(&self, liveness: &Liveness) {
        // Two clocks may differ in rate by 500 ppm. The engine subtracts its share from the
        // remaining time, not from the whole timeout.
        let certain = self.timeout().saturating_sub(self.timeout() / 2_000);
        let valid_until = liveness.valid_from().saturating_add(certain);
        self.valid_until.send_replace(valid_until);
    }
}

impl net::Session for Session {
    type Checked = ();

    const SERVICE: &'static str = "zookeeper";
    const ENDED: &'static str = "the session has ended";
    const ABSENT: &'static str = "there is no session";

    fn epoch(&self) -> u32 {
        self.epoch
    }

    fn is_closed(&self) -> bool {
        self.is_over()
    }

    /// Ends the session for this client. The servers keep it until the client closes it.
    fn close(&self) {
        self.is_abandoned.send_replace(true);
    }

    fn outlasts_requests(_error: &Error) -> bool {
        false
    }
}

/// Whether a moment is at least `time` away.
fn is_after(moment: BootInstant, time: Duration) -> bool {
    moment.duration_since(BootInstant::now()) >= time
}

pub(super) fn unconfirmed() -> Error {
    Error::unavailable("the servers have not confirmed the session within its timeout")
}
