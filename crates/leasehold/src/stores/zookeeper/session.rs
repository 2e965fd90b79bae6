//! One session with the servers, and until when it certainly exists.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use zookeeper_client::Client;

use super::liveness::{self, Liveness};
use crate::runtime::clock::BootInstant;
use crate::{Error, Result};

/// One session. Its ephemeral nodes exist as long as it does.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client: Client,
    /// Until when the session certainly exists, in nanoseconds of the clock.
    valid_until: AtomicU64,
    confirmed: Notify,
    /// Whether a claim of the session has been granted.
    has_held: AtomicBool,
    /// Until when heartbeats are sent at the short interval of a holder, in nanoseconds of the
    /// clock.
    held_until: AtomicU64,
    held: Notify,
    /// An upper bound of half a tick of the servers, in nanoseconds; 0 while it is unknown.
    half_tick: AtomicU64,
    /// Whether a server has shown a node that the other servers do not have.
    is_abandoned: AtomicBool,
    abandoned: Notify,
}

impl Session {
    pub(super) fn new(client: Client, liveness: &Liveness) -> Self {
        let session = Self {
            client,
            valid_until: AtomicU64::default(),
            confirmed: Notify::default(),
            has_held: AtomicBool::default(),
            held_until: AtomicU64::default(),
            held: Notify::default(),
            half_tick: AtomicU64::default(),
            is_abandoned: AtomicBool::default(),
            abandoned: Notify::default(),
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
        let valid_until = BootInstant::from_nanos(self.valid_until.load(Ordering::Acquire));
        let remaining = valid_until.duration_since(from);
        if remaining.is_zero() {
            return Err(unconfirmed());
        }
        Ok(remaining)
    }

    /// Waits until the session certainly exists for some more time, or is over.
    ///
    /// It usually returns at once. After an outage it takes one or two heartbeats.
    pub(super) async fn confirmed(&self) {
        loop {
            let confirmed = self.confirmed.notified();
            if self.is_over() || self.is_confirmed() {
                return;
            }
            tokio::select! {
                () = confirmed => {}
                () = self.ended() => {}
            }
        }
    }

    /// Records that a claim is held. Heartbeats are more frequent while claims are held and
    /// renewed.
    pub(super) fn note_holder(&self) {
        self.has_held.store(true, Ordering::Release);

        // Holders renew at least once in a tenth of the session.
        let held_until = BootInstant::now().saturating_add(self.timeout() / 8);
        let before = self
            .held_until
            .swap(held_until.as_nanos(), Ordering::AcqRel);
        if before <= BootInstant::now().as_nanos() {
            self.held.notify_one();
        }
    }

    /// Keeps the frequent heartbeats for a holder that renews, and waits for the next one.
    ///
    /// So a renewal extends the hold by the present remaining time of the session. The wait has a
    /// limit a little above the usual interval. After an outage the first confirmation is enough
    /// for the hold.
    pub(super) async fn next_confirmation(&self) {
        if !self.has_held.load(Ordering::Acquire) {
            return;
        }

        let confirmed = self.confirmed.notified();
        self.note_holder();
        if self.is_valid_for(self.timeout() / 2) {
            // Without a new confirmation the session is valid until the end known so far.
            let _ = timeout(self.timeout() / 12, confirmed).await;
        }
    }

    pub(super) fn is_held(&self) -> bool {
        BootInstant::now().as_nanos() < self.held_until.load(Ordering::Acquire)
    }

    /// Waits until the heartbeat after the last one of `liveness` is due.
    pub(super) async fn next_heartbeat(&self, liveness: &Liveness) {
        loop {
            let interval = liveness::heartbeat_interval(self.timeout(), self.is_held());
            let due = liveness.next_heartbeat(interval);
            tokio::select! {
                () = sleep(due.duration_since(BootInstant::now())) => return,
                () = self.held.notified() => {}
            }
        }
    }

    /// Returns an upper bound of half a tick of the servers.
    pub(super) fn half_tick(&self) -> Duration {
        let bound = liveness::half_tick(self.timeout());
        match self.half_tick.load(Ordering::Acquire) {
            0 => bound,
            nanos => bound.min(Duration::from_nanos(nanos)),
        }
    }

    pub(super) fn set_half_tick(&self, half_tick: Duration) {
        let nanos = u64::try_from(half_tick.as_nanos()).unwrap_or(u64::MAX);
        self.half_tick.store(nanos, Ordering::Release);
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.is_valid_for(self.timeout() / 4)
    }

    fn is_valid_for(&self, time: Duration) -> bool {
        self.remaining(BootInstant::now())
            .is_ok_and(|remaining| remaining >= time)
    }

    /// Whether the servers have ended the session, or this client has abandoned it.
    pub(super) fn is_over(&self) -> bool {
        self.is_abandoned.load(Ordering::Acquire) || self.client.state().is_terminated()
    }

    /// Waits until the session is over.
    pub(super) async fn ended(&self) {
        let mut states = self.client.state_watcher();
        loop {
            let abandoned = self.abandoned.notified();
            if self.is_over() {
                return;
            }
            tokio::select! {
                () = abandoned => {}
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
        self.is_abandoned.store(true, Ordering::Release);
        self.abandoned.notify_waiters();
        Error::unavailable("a server shows nodes that the other servers do not have").help(
            "its data is damaged: stop that server, empty its data folder, and start it again",
        )
    }

    /// Extends the time for which the session certainly exists, as far as `liveness` proves it.
    pub(super) fn confirm(&self, liveness: &Liveness) {
        // Two clocks may differ in rate by 500 ppm. The engine subtracts its share from the
        // remaining time, not from the whole timeout.
        let certain = self.timeout().saturating_sub(self.timeout() / 2_000);
        let valid_until = liveness.valid_from().saturating_add(certain);
        self.valid_until
            .store(valid_until.as_nanos(), Ordering::Release);
        self.confirmed.notify_waiters();
    }
}

pub(super) fn unconfirmed() -> Error {
    Error::unavailable("the servers have not confirmed the session within its timeout")
}
