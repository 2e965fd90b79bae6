//! The task that keeps a link: it connects, checks the connection, and connects again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use super::{Handshake, LinkConfig, State};
use crate::client::watched::Watched;
use crate::client::{Address, Session, reply_error};
use leasehold_core::internal::{Backoff, background, reconnected};
use leasehold_core::{Error, Result};

/// How long one attempt to connect may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// A connection that lasted for less than this counts as a failed attempt: a proxy may accept a
/// connection and close it at once.
const STABLE_AFTER: Duration = Duration::from_secs(1);
/// The time between two attempts to connect, if the first one led to a replica.
const REPLICA_INTERVAL: Duration = Duration::from_secs(1);
/// How often the link checks that replies arrive.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// After this many checks without a reply to a request in flight, the connection counts as deaf.
const SILENT_CHECKS_MAX: u32 = 4;
/// After this many checks the handshake is repeated.
const HANDSHAKE_EVERY: u32 = 120;

/// Opens one connection after another, and publishes the state of the link.
///
/// After a panic it runs again, and first gives up the connection that nobody has watched since.
pub(super) async fn supervise(config: Arc<LinkConfig>, states: Watched<State>) {
    states.set_if(end_session);
    let grace = config.endpoint.settings().crash_grace;
    let mut backoff = reconnects(grace);
    let mut broken_at = Instant::now();
    let mut had_connection = false;
    let mut runtime = config.runtime.clone();

    loop {
        let epoch = config.epochs.next();
        let refusals = config.endpoint.refusals();
        let begun = Instant::now();
        match connect(&config, &mut runtime, epoch).await {
            Ok(Connected {
                session,
                address,
                handshake_result,
            }) => {
                let connected_at = Instant::now();
                if had_connection {
                    reconnected("redis");
                }
                had_connection = true;
                states.set(State::Up(Arc::clone(&session), handshake_result.clone()));
                let broke = || Error::unavailable("the connection broke");
                let error = tokio::select! {
                    biased;
                    error = config.endpoint.refused(&session, refusals) => error,
                    () = monitor(&config, &session, &handshake_result) => broke(),
                    () = config.endpoint.moved_from(&address) => broke(),
                };
                session.close();

                let usual = pause_after_break(&mut backoff, connected_at.elapsed());
                let pause = pause_after_replica(&error, grace, begun).unwrap_or(usual);
                states.set(State::Down(epoch + 1, error));
                broken_at = Instant::now();
                sleep(pause).await;
            }
            Err(error) => {
                tracing::debug!(server = %config.endpoint, %error, "cannot connect");
                let usual = pause_after_failure(&mut backoff, grace, broken_at.elapsed());
                let pause = pause_after_replica(&error, grace, begun).unwrap_or(usual);
                states.set(State::Down(epoch + 1, error));
                sleep(pause).await;
            }
        }
    }
}

/// Closes the connection, if there is one; returns whether this changes the state.
fn end_session(state: &mut State) -> bool {
    let State::Up(session, _) = state else {
        return false;
    };
    session.close();
    *state = State::Down(
        session.epoch + 1,
        Error::unavailable("the connection broke"),
    );
    true
}

/// Returns the backoff of a link: its pauses stay below a twentieth of the crash grace.
fn reconnects(grace: Option<Duration>) -> Backoff {
    let max = grace.map_or(BACKOFF_MAX, |grace| BACKOFF_MAX.min(grace / 20));
    Backoff::between(BACKOFF_MIN, max)
}

/// Returns the pause after a connection that has broken.
fn pause_after_break(backoff: &mut Backoff, lasted: Duration) -> Duration {
    if lasted < STABLE_AFTER {
        return shortened(backoff.next_pause());
    }
    backoff.reset();
    Duration::ZERO
}

/// Returns the pause after an attempt that failed.
///
/// Without crash detection the lease limits the outage, but a link does not know the lease. So the
/// pause is at most a twelfth of the outage so far: a long pause must not prolong a short outage.
fn pause_after_failure(
    backoff: &mut Backoff,
    grace: Option<Duration>,
    outage: Duration,
) -> Duration {
    let pause = shortened(backoff.next_pause());
    match grace {
        Some(_) => pause,
        None => pause.min(BACKOFF_MIN.max(outage / 12)),
    }
}

/// Returns the pause after an attempt, begun at `begun`, that led to a replica.
///
/// A replica stays one for longer than a server loads its data. A hold must survive the pause.
fn pause_after_replica(error: &Error, grace: Option<Duration>, begun: Instant) -> Option<Duration> {
    let longest = grace.map_or(REPLICA_INTERVAL, |grace| REPLICA_INTERVAL.min(grace / 8));
    reply_error::shows_replica(error).then(|| longest.saturating_sub(begun.elapsed()))
}

/// Shortens a pause by up to a half, so that the clients of one server do not return together.
fn shortened(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// A session after its handshake.
struct Connected {
    session: Arc<Session>,
    address: Address,
    handshake_result: Handshake,
}

/// Connects to the server that has the role of the endpoint.
///
/// If the role moves meanwhile, the attempt ends: a server that has lost the role may be paused.
async fn connect(
    config: &LinkConfig,
    runtime: &mut Option<Handle>,
    epoch: u32,
) -> Result<Connected> {
    let locating = timeout(CONNECT_MAX, config.endpoint.locate()).await;
    let address = locating.unwrap_or_else(|_| Err(Error::unavailable("no sentinel replies")))?;
    tokio::select! {
        biased;
        connected = connect_to(config, address.clone(), runtime, epoch) => connected,
        () = config.endpoint.moved_from(&address) => {
            Err(Error::unavailable("another server has become the master"))
        }
    }
}

async fn connect_to(
    config: &LinkConfig,
    address: Address,
    runtime: &mut Option<Handle>,
    epoch: u32,
) -> Result<Connected> {
    let located = address.clone();
    let channel = config.channel.clone();
    let on_push = Arc::clone(&config.on_push);
    let begun = Arc::new(AtomicBool::new(false));
    let begins = Arc::clone(&begun);

    let opening = async move {
        begins.store(true, Ordering::Release);
        Session::connect(&address, &channel, epoch, on_push).await
    };

    let handshaken = async {
        let Ok(opened) = background::run_on(runtime.as_ref(), opening).await else {
            // From now on the background thread drives the connection.
            *runtime = None;
            return Err(Error::unavailable(
                "the runtime that drove the connection has ended",
            ));
        };
        let session = Arc::new(opened?);
        let checking = async {
            config.endpoint.verify(&session).await?;
            (config.handshake)(Arc::clone(&session)).await
        };

        // The server executes the subscription first. The checks do not wait for its reply.
        let (subscribed, checked) = join(session.subscribe(), checking).await;
        subscribed?;
        let handshake_result = checked?;
        Ok(Connected {
            session,
            address: located,
            handshake_result,
        })
    };

    if let Ok(connected) = timeout(CONNECT_MAX, handshaken).await {
        return connected;
    }
    if begun.load(Ordering::Acquire) {
        return Err(no_reply(config.endpoint.is_encrypted()));
    }
    *runtime = None;
    Err(Error::unavailable(
        "the runtime that drove the connection is not polled",
    ))
}

fn no_reply(is_encrypted: bool) -> Error {
    let error = Error::unavailable(format!("the server did not reply within {CONNECT_MAX:?}"));
    if is_encrypted {
        error.help("check that this port uses TLS; without TLS, write redis:// or redlock://")
    } else {
        error
    }
}

/// Returns when the session has ended or is deaf, or the server has changed.
///
/// One timer serves all requests: a timer per request would cost as much time as the request.
async fn monitor(config: &LinkConfig, session: &Arc<Session>, handshake_result: &Handshake) {
    let mut silent = 0;
    let mut received = 0;
    for check in 1u32.. {
        let closed = timeout(POLL_INTERVAL, session.closed_signal());
        if closed.await.is_ok() {
            return;
        }

        let (in_flight, now_received) = session.progress();
        let is_silent = in_flight && now_received == received;
        silent = if is_silent { silent + 1 } else { 0 };
        received = now_received;
        if silent >= SILENT_CHECKS_MAX {
            return;
        }

        let is_handshake_due = check % HANDSHAKE_EVERY == 0;
        if is_handshake_due && !is_same_server(config, session, handshake_result).await {
            return;
        }
    }
}

async fn is_same_server(
    config: &LinkConfig,
    session: &Arc<Session>,
    handshake_result: &Handshake,
) -> bool {
    let again = timeout(CONNECT_MAX, (config.handshake)(Arc::clone(session))).await;
    again.is_ok_and(|again| again.is_ok_and(|again| again == *handshake_result))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconnect_pauses_stay_below_a_twentieth_of_the_grace() {
        let grace = Some(Duration::from_secs(4));
        let mut backoff = reconnects(grace);

        let hour = Duration::from_secs(3600);
        let pauses: Vec<Duration> = (0..20)
            .map(|_| pause_after_failure(&mut backoff, grace, hour))
            .collect();

        let longest = Duration::from_millis(200);
        assert!(pauses.iter().all(|pause| *pause <= longest), "{pauses:?}");
        assert!(pauses[10] >= longest / 2, "they grow: {pauses:?}");
    }

    #[test]
    fn reconnect_pauses_follow_the_outage_where_no_grace_is_known() {
        let mut backoff = reconnects(None);
        let mut after = |outage| pause_after_failure(&mut backoff, None, outage);

        for _ in 0..8 {
            assert!(after(Duration::from_millis(600)) <= Duration::from_millis(50));
        }
        assert!(after(Duration::from_secs(60)) >= BACKOFF_MAX / 2);
    }

    #[test]
    fn replica_is_tried_once_a_second_unless_a_hold_would_end() {
        let seconds = Duration::from_secs;
        // No time has passed since.
        let begun = Instant::now() + seconds(3_600);
        let pause = |error, grace| pause_after_replica(error, grace, begun);
        let replica = reply_error::read_only();

        assert_eq!(pause(&replica, None), Some(seconds(1)));
        assert_eq!(pause(&replica, Some(seconds(10))), Some(seconds(1)));
        assert_eq!(pause(&replica, Some(seconds(2))), Some(seconds(2) / 8));
        let broke = Error::unavailable("the connection broke");
        assert_eq!(pause(&broke, None), None);
    }

    #[test]
    fn short_lived_connection_counts_as_a_failed_attempt() {
        let mut backoff = reconnects(Some(Duration::from_secs(10)));
        let mut after = |lasted| pause_after_break(&mut backoff, lasted);

        let pauses: Vec<Duration> = (0..10).map(|_| after(Duration::ZERO)).collect();
        assert!(pauses[0] <= BACKOFF_MIN, "{pauses:?}");
        assert!(pauses[9] >= Duration::from_millis(250), "{pauses:?}");

        // A connection that was stable is opened again at once.
        assert_eq!(after(STABLE_AFTER), Duration::ZERO);
        assert!(after(Duration::ZERO) <= BACKOFF_MIN);
    }
}
