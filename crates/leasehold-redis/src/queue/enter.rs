//! Requests that put a claim into a queue or find it there.

use std::time::Duration;

use super::claims::TrackedClaim;
use super::enter_reply::EnterReply;
use super::layout::request;
use super::liveness::LivenessRef;
use super::server::{LockKeys, Server};
use super::{Redis, record, scripts};
use crate::client;
use crate::client::{ServerClock, Session, decode, id_text, shows_replica};
use leasehold_core::internal::BootInstant;
use leasehold_core::store::{Claim, Share, Standing, check_same_kind, share_from_parts};
use leasehold_core::{Error, Result};

/// How long after it was sent the server may execute a request to enter. It is longer than the
/// silence after which the client closes a connection.
const NOT_AFTER: Duration = Duration::from_secs(5);
/// After this time the server is certain to refuse the request, unless its clock was set back.
/// Whole seconds are compared, and clocks differ in rate.
const LATE_MAX: Duration = Duration::from_secs(7);

impl Redis {
    /// Sends a request to enter and applies its reply to the local state of the claim.
    pub(super) async fn send_enter(
        &self,
        claim: &Claim,
        mode: EnterMode,
        tracked: &TrackedClaim,
    ) -> Result<EnterReply> {
        let server = self.server_of(claim)?;
        let request = self.enter_request(claim, mode, &server);
        let arguments = request.encode();

        let run_once = async || {
            let sent = Sent {
                at: BootInstant::now(),
                liveness_epoch: request.liveness.epoch,
                caller_epoch: server.links.caller.epoch(),
            };
            let reply = self.run_enter(claim, &arguments, &server, None).await;
            if mode.adds_claim() && reply.as_ref().is_err_and(may_add_later) {
                tracked.may_be_late(sent.at.saturating_add(LATE_MAX));
            }
            (reply, sent)
        };
        let (mut reply, mut sent) = run_once().await;
        if reply
            .as_ref()
            .is_err_and(|error| is_late(error, &server.clock))
        {
            // The server executed nothing, and the client now knows its clock.
            (reply, sent) = Box::pin(run_once()).await;
        }

        let text: String = decode(reply.map_err(|error| mismatch(error, claim.share))?)?;
        let reply = EnterReply::parse(&text, &arguments.id).ok_or_else(|| self.protocol_error())?;
        self.observations
            .observe(&claim.name, &reply, &request.expired);
        tracked.apply_reply(mode, &reply, sent);
        Ok(reply)
    }

    fn enter_request<'a>(
        &self,
        claim: &'a Claim,
        mode: EnterMode,
        server: &Server,
    ) -> EnterRequest<'a> {
        let (highest_token, expired) = self.observations.hint(&claim.name);
        // The fast path neither waits after a failover nor reserves tokens.
        let may_grant_fast = self.longest_lease().is_none() && claim.reserved == 0;
        let proposal = if may_grant_fast && claim.share.is_whole() && mode.adds_claim() {
            server.clock.micros().max(highest_token + 1)
        } else {
            0
        };

        EnterRequest {
            claim,
            mode,
            proposal,
            highest_token,
            liveness: self.liveness_ref(claim, server),
            nonce: self.nonces.fresh(),
            expired,
        }
    }

    /// Runs the script, over one connection if it is given.
    async fn run_enter(
        &self,
        claim: &Claim,
        request: &EnterArguments,
        server: &Server,
        over: Option<&Session>,
    ) -> Result<redis::Value> {
        let key = record::key_of(&claim.name);
        let not_after = not_after(&server.clock);
        let arguments = request.with(&not_after, self.longest_lease());
        let script = &scripts::ENTER;
        let Some(session) = over else {
            return self.run(script, claim.lease, &key, &arguments).await;
        };
        let keys = LockKeys::new(&key, &self.servers);
        script.run(session, &keys.texts(), &arguments).await
    }

    /// Refreshes a claim over one connection, and returns its standing.
    pub(super) async fn refresh_on(
        &self,
        session: &Session,
        server: &Server,
        claim: &Claim,
    ) -> Result<Standing> {
        let request = self
            .enter_request(claim, EnterMode::Refresh, server)
            .encode();
        let reply = self.run_enter(claim, &request, server, Some(session));
        let text: String = decode(reply.await?)?;
        let reply = EnterReply::parse(&text, &request.id).ok_or_else(|| self.protocol_error())?;
        Ok(reply.standing)
    }
}

/// Returns until when the server may execute a request that is sent now, in its seconds.
fn not_after(clock: &ServerClock) -> String {
    let seconds = clock.micros() / 1_000_000 + NOT_AFTER.as_secs();
    seconds.to_string()
}

/// What the server does with the claim of a request to enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EnterMode {
    /// Adds it to the queue.
    Queue,
    /// Adds it only if it is granted at once.
    TryNow,
    /// Extends the lease of a claim that is queued or held.
    Refresh,
    /// Checks the holders. A waiter's lease stays as it is.
    Poll,
}

impl EnterMode {
    fn adds_claim(self) -> bool {
        matches!(self, Self::Queue | Self::TryNow)
    }

    fn letter(self) -> char {
        match self {
            Self::Queue => 'Q',
            Self::TryNow => 'R',
            Self::Refresh => 'F',
            Self::Poll => 'L',
        }
    }
}

/// A request to enter.
pub(super) struct EnterRequest<'a> {
    pub(super) claim: &'a Claim,
    pub(super) mode: EnterMode,
    /// The token that the fast path gives the claim; 0 disables the fast path.
    pub(super) proposal: u64,
    /// The highest token that this client has received for the name.
    pub(super) highest_token: u64,
    pub(super) liveness: LivenessRef,
    pub(super) nonce: String,
    /// The absences that have lasted for their grace.
    pub(super) expired: String,
}

/// A request to enter, encoded for the script.
pub(super) struct EnterArguments {
    pub(super) id: String,
    record: String,
    life: String,
    settings: String,
}

impl EnterArguments {
    /// Returns the arguments of the script.
    pub(super) fn with<'a>(
        &'a self,
        not_after: &'a str,
        longest_lease: Option<&'a str>,
    ) -> Vec<&'a str> {
        let mut arguments = vec![&*self.record, &*self.life, &*self.settings, not_after];
        arguments.extend(longest_lease);
        arguments
    }
}

impl EnterRequest<'_> {
    pub(super) fn encode(&self) -> EnterArguments {
        let id = id_text(self.claim.id);
        let record = record::record(self.claim, &id, self.proposal, &self.liveness);

        let mut settings = String::with_capacity(request::EXPIRED.start + self.expired.len());
        settings.push(self.mode.letter());
        request::HINT.write_number(self.highest_token, &mut settings);
        settings.push_str(&self.nonce);
        settings.push_str(&self.expired);

        EnterArguments {
            id,
            record,
            life: record::life(self.claim).to_string(),
            settings,
        }
    }
}

/// When a request was sent, and the connections at that time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// When it was sent.
    pub(crate) at: BootInstant,
    /// The epoch of the background link that the request named.
    pub(crate) liveness_epoch: u32,
    /// The epoch of the caller link.
    pub(crate) caller_epoch: u32,
}

/// Replaces the script's `MISMATCH`, which names the present share, with the error of all stores.
fn mismatch(error: Error, requested: Share) -> Error {
    let Some(detail) = client::detail(&error, "MISMATCH") else {
        return error;
    };
    let mut numbers = detail
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|number| number.parse().ok());

    let present = numbers
        .next()
        .zip(numbers.next())
        .map(|(weight, capacity)| share_from_parts(weight, capacity));
    match present.map(|present| check_same_kind(requested, present?)) {
        Some(Err(mismatch)) => mismatch,
        _ => error,
    }
}

/// Whether the server may have executed a request with this error, or may execute it later.
///
/// A replica executes none. A request that a client did not send to one has the same error.
fn may_add_later(error: &Error) -> bool {
    error.is_unavailable() && !shows_replica(error)
}

/// Whether the server refused a request as late. Sets the local copy of its clock if so.
fn is_late(error: &Error, clock: &ServerClock) -> bool {
    let Some(detail) = client::detail(error, "LATE") else {
        return false;
    };
    let mut numbers = detail
        .split(' ')
        .filter_map(|word| word.parse::<u64>().ok());
    let pair = numbers.next().zip(numbers.next());
    let time = pair.and_then(|(seconds, micros)| client::micros_of(seconds, micros));
    let Some(time) = time else {
        return false;
    };

    clock.set(time, BootInstant::now());
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::store_error;

    fn refusal(reply: &str) -> Error {
        let parsed = redis::parse_redis_value(reply.as_bytes()).expect("a reply");
        let redis::Value::ServerError(error) = parsed else {
            panic!("{reply} is an error")
        };
        store_error(error.into())
    }

    /// A waiter makes such a request every second while its primary stays demoted.
    #[test]
    fn request_refused_by_a_replica_leaves_nothing_to_release() {
        for (error, may_add) in [
            (
                refusal("-READONLY You can't write against a replica\r\n"),
                false,
            ),
            (
                refusal("-ERR Error running script: -READONLY You can't\r\n"),
                false,
            ),
            (refusal("-LOADING Redis is loading the dataset\r\n"), true),
            (Error::unavailable("the connection broke"), true),
        ] {
            assert_eq!(may_add_later(&error), may_add, "{error}");
        }
    }

    #[test]
    fn impossible_time_in_a_refusal_is_not_taken_over() {
        for (refusal, is_time) in [
            ("-LATE 1750000000 5\r\n", true),
            ("-LATE 18446744073709551615 5\r\n", false),
            ("-LATE 1 18446744073709551615\r\n", false),
            ("-LATE 1\r\n", false),
            ("-ERR x\r\n", false),
        ] {
            let error = self::refusal(refusal);
            assert_eq!(is_late(&error, &ServerClock::default()), is_time, "{error}");
        }
    }
}
