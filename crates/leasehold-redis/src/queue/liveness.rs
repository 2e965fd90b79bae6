//! Crash detection: the connection that proves a client alive.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::join3;
use parking_lot::Mutex;

use super::layout::record;
use super::record::{NO_SERVER, millis};
use super::server::Server;
use super::{Redis, failover};
use crate::client;
use crate::client::{DoHandshake, ServerClock, ServerId, Session, Settings, State};
use leasehold_core::store::Claim;

/// Identifies the connection that proves a client alive: client, connection epoch, and server.
#[derive(Clone, Debug)]
pub(super) struct LivenessRef {
    pub(super) client: Arc<str>,
    pub(super) epoch: u32,
    /// `None` if the connection proves nothing about the claim.
    pub(super) crash_check: Option<CrashCheck>,
}

#[derive(Clone, Debug)]
pub(super) struct CrashCheck {
    pub(super) server: Arc<str>,
    /// How long the holder trusts its last reply. A contender waits for the holder's grace, not for
    /// its own, before it revokes the hold.
    pub(super) grace: Duration,
}

impl LivenessRef {
    /// Appends the fields from the client to the grace of a record.
    pub(super) fn write(&self, text: &mut String) {
        let server = self
            .crash_check
            .as_ref()
            .map_or(NO_SERVER, |check| &check.server);
        let grace = self
            .crash_check
            .as_ref()
            .map_or(0, |check| millis(check.grace));

        text.push_str(&self.client);
        record::EPOCH.write_number(u64::from(self.epoch), text);
        text.push_str(server);
        record::GRACE.write_number(grace, text);
    }
}

/// Whether holders are checked by their connections.
///
/// The first handshake decides this once. Otherwise a missing connection could later revoke a
/// holder that relied only on its lease.
#[derive(Debug, Default)]
pub(super) struct CrashDetectionMode(OnceLock<bool>);

impl CrashDetectionMode {
    fn decide(&self, is_on: bool) {
        self.0.get_or_init(|| is_on);
    }

    pub(super) fn is_on(&self) -> bool {
        self.0.get() == Some(&true)
    }
}

impl Redis {
    /// Returns the crash grace if it applies: crash detection is on, the claim is renewed, and its
    /// lease is longer than the grace.
    pub(super) fn grace(&self, claim: &Claim) -> Option<Duration> {
        let grace = self
            .settings
            .crash_grace
            .filter(|grace| *grace < claim.lease)?;
        (claim.auto_renew && self.crash_detection.is_on()).then_some(grace)
    }

    /// Returns how long after a request its reply proves that the hold is valid.
    pub(super) fn safe_for(&self, claim: &Claim) -> Duration {
        self.grace(claim).unwrap_or(claim.lease)
    }

    pub(super) fn liveness_ref(&self, claim: &Claim, server: &Server) -> LivenessRef {
        let grace = self.grace(claim);
        server.links.background.with_state(|state| {
            let history = match state {
                State::Up(_, server) => server.clone(),
                _ => None,
            };
            let crash_check = history
                .zip(grace)
                .map(|(server, grace)| CrashCheck { server, grace });

            LivenessRef {
                client: Arc::clone(&server.client),
                epoch: state.epoch(),
                crash_check,
            }
        })
    }
}

/// Each check reads the id of the server's history, which changes with every change of roles.
/// Every tenth check repeats the full handshake.
const CHECKS_PER_HANDSHAKE: u32 = 10;

/// Counts the checks of one connection.
#[derive(Default)]
struct Checks {
    epoch: u32,
    count: u32,
}

impl Checks {
    /// Returns the number of earlier checks of the connection of `epoch`.
    fn next(&mut self, epoch: u32) -> u32 {
        self.count = if self.epoch == epoch {
            self.count + 1
        } else {
            0
        };
        self.epoch = epoch;
        self.count
    }
}

/// The handshake of the background link.
pub(super) fn background_handshake(
    channel: String,
    clock: Arc<ServerClock>,
    crash_detection: Arc<CrashDetectionMode>,
    server_id: Arc<ServerId>,
    settings: Settings,
) -> DoHandshake {
    let checks = Mutex::<Checks>::default();

    Arc::new(move |session: Arc<Session>| {
        let channel = channel.clone();
        let clock = Arc::clone(&clock);
        let crash_detection = Arc::clone(&crash_detection);
        let server_id = Arc::clone(&server_id);
        let check = checks.lock().next(session.epoch);

        Box::pin(async move {
            let checking = async {
                if check.is_multiple_of(CHECKS_PER_HANDSHAKE) || !crash_detection.is_on() {
                    client::handshake(&session, &clock).await?;
                }
                Ok(())
            };
            let reading = async {
                match settings.crash_grace {
                    Some(_) => server_id.read(&session, &channel).await,
                    None => Ok(None),
                }
            };

            // All send their requests at once.
            let noting = failover::note_longest_lease(&session, settings);
            let (checked, server, noted) = Box::pin(join3(checking, reading, noting)).await;
            checked?;
            let server = server?;
            noted?;
            crash_detection.decide(server.is_some());
            Ok(server)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server behind a new connection may be another one.
    #[test]
    fn every_connection_begins_with_a_full_handshake() {
        let mut checks = Checks::default();
        let mut counts = |epoch| [(); 3].map(|()| checks.next(epoch));

        for epoch in [1, 3, 5] {
            assert_eq!(counts(epoch), [0, 1, 2], "connection {epoch}");
        }
    }
}
