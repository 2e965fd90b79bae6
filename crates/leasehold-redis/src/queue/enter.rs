//! Requests that put a claim into a queue or find it there, and what counts as a grant. A request
//! also names what earlier replies have shown of other clients' claims.

use std::sync::Arc;
use std::time::Duration;

use super::claims::TrackedClaim;
use super::first::FirstReply;
use super::messages::{
    Absence, EnterMode, EnterReply, EnterRequest, LATE_MAX, NOT_AFTER, Nonces, Part, Sent,
    may_add_later, with_longest_lease,
};
use super::record::{self, LivenessRef, LockKey, LockKeys};
use super::scripts;
use super::server::{Server, protocol_error};
use crate::client;
use crate::client::{
    ReplyText, ServerCall, ServerClock, Session, StoreServers, Value, command, decode, id_text,
    reply_timeout, with_reply_timeout,
};
use leasehold_core::internal::{BootInstant, Observations};
use leasehold_core::store::{Claim, Share, Standing, check_same_kind, share_from_parts};
use leasehold_core::{Error, Result, Token};

/// How long `WAIT` waits for replicas. It is less than the silence after which a connection counts
/// as broken.
const REPLICATION_MAX: Duration = Duration::from_millis(1500);
/// A claim that its caller enters, refreshes or polls, with the parts of the store that its
/// requests read.
///
/// A reply is written into `tracked`, and into the observations of the claim's name.
pub(super) struct Entering<'a> {
    pub(super) claim: &'a Claim,
    pub(super) tracked: &'a TrackedClaim,
    pub(super) server: Arc<Server>,
    pub(super) servers: &'a StoreServers<Server>,
    pub(super) observations: &'a Observations<String>,
    pub(super) nonces: &'a Nonces,
    pub(super) longest_lease: Option<&'a str>,
}

impl Entering<'_> {
    /// Sends a request to enter and applies its reply to the local state of the claim.
    pub(super) async fn send(&self, mode: EnterMode) -> Result<EnterReply> {
        let clock = &self.server.clock;
        let request = self.request(mode);

        let run_once = async || {
            let sent = Sent {
                at: BootInstant::now(),
                liveness_epoch: request.liveness.epoch,
                caller_epoch: self.server.links.caller.epoch(),
            };
            let reply = self.run(&request, None).await;
            if mode.adds_claim() && reply.as_ref().is_err_and(may_add_later) {
                self.tracked.may_be_late(sent.at.saturating_add(LATE_MAX));
            }
            (reply, sent)
        };
        let (mut reply, mut sent) = run_once().await;
        if reply.as_ref().is_err_and(|error| is_late(error, clock)) {
            // The server executed nothing, and the client now knows its clock.
            (reply, sent) = Box::pin(run_once()).await;
        }

        let replied = reply.map_err(|error| mismatch(error, self.claim.share))?;
        self.apply(mode, replied, sent, &request.expired)
    }

    /// Applies the reply to a request that was sent while the store was opened.
    pub(super) fn apply_first(&self, mode: EnterMode, first: FirstReply) -> Result<EnterReply> {
        self.apply(mode, first.reply, first.sent, &[])
    }

    fn apply(
        &self,
        mode: EnterMode,
        reply: Value,
        sent: Sent,
        expired: &[Absence],
    ) -> Result<EnterReply> {
        let reply = self.parse(reply)?;
        // A request that had no need to look at the holders has ended no absence.
        let has_looked = reply.next_expiry.is_some();
        let ended = if has_looked { expired } else { &[] };
        let token = reply.standing.token();
        self.observations
            .observe(&self.claim.name, token, &reply.absences, ended);
        self.tracked.apply_reply(mode, &reply, sent);
        Ok(reply)
    }

    fn request(&self, mode: EnterMode) -> EnterRequest<'_> {
        let claim = self.claim;
        let server = &self.server;
        let (highest_token, expired) = self.observations.hint(&claim.name);
        let proposal = if self.longest_lease.is_none() && may_be_granted_fast(claim, mode) {
            server.clock.micros().max(highest_token + 1)
        } else {
            // The fast path does not wait after a failover.
            0
        };

        let grace = self.tracked.validity().grace;
        EnterRequest {
            claim,
            mode,
            proposal,
            highest_token,
            liveness: LivenessRef::of(&server.links.background, &server.client, grace),
            nonce: self.nonces.fresh(),
            expired,
        }
    }

    /// Runs the script: over one connection if it is given, and otherwise on the caller link if the
    /// caller's runtime drives it.
    async fn run(&self, request: &EnterRequest<'_>, over: Option<&Session>) -> Result<Value> {
        let record = request.record();
        let life = record::life(self.claim);
        let not_after = not_after(&self.server.clock);
        let longest_lease = self.longest_lease.unwrap_or_default();
        let arguments: [Part<'_>; 5] = [&record, &life, request, &not_after, &longest_lease];
        let call = ServerCall {
            script: &scripts::ENTER,
            keys: &LockKeys::new(LockKey(&self.claim.name), self.servers),
            arguments: with_longest_lease(&arguments, self.longest_lease),
        };
        if let Some(session) = over {
            return call.script.run(session, call.keys, call.arguments).await;
        }
        let limit = reply_timeout(self.claim.lease);
        self.servers
            .run(call, limit, |server| server.links.for_request())
            .await
    }

    fn parse(&self, reply: Value) -> Result<EnterReply> {
        let text: ReplyText = decode(reply)?;
        let id = id_text(self.claim.id);
        let parsed = text.as_str().and_then(|text| EnterReply::parse(text, &id));
        parsed.ok_or_else(|| protocol_error(self.servers))
    }

    /// Waits until `wanted` replicas have a grant.
    ///
    /// It does not release the grant if that fails, because the caller may enter the same claim
    /// again: a release that arrives late would end the hold of the later grant.
    pub(super) async fn confirm_replicas(&self, token: Token, wanted: u32) -> Result<()> {
        let limit = reply_timeout(self.claim.lease);
        let link = self
            .server
            .wait_link
            .as_ref()
            .ok_or_else(|| Error::unavailable("the link for replicas is closed"))?;
        let session = link.session(limit).await?;

        // `WAIT` counts only the writes of its own connection.
        let confirming = async {
            let request = self.request(EnterMode::Refresh);
            let reply = self.run(&request, Some(&session)).await?;
            let standing = self.parse(reply)?.standing;
            if standing != (Standing::Held { token }) {
                // After a failover, the new master may have granted the same claim again, with a
                // larger token.
                return Err(Error::unavailable(
                    "the grant was lost before the replicas had received it",
                ));
            }
            count_replicas(&session, wanted, limit).await
        };
        let count = with_reply_timeout(&session, limit, confirming).await?;
        if count >= wanted {
            return Ok(());
        }
        Err(Error::unavailable(format!(
            "only {count} of {wanted} replicas have the grant, so it does not count"
        ))
        .help("bring the replicas back, or require fewer with replicas="))
    }
}

/// Counts the replicas that have the writes of this connection.
async fn count_replicas(session: &Session, wanted: u32, limit: Duration) -> Result<u32> {
    let timeout = (limit / 2).min(REPLICATION_MAX);
    let mut wait = command("WAIT");
    wait.arg(wanted.to_string())
        .arg(timeout.as_millis().to_string());
    session.request(&wait).await
}

/// Whether the script's fast path may grant a claim. It reserves no tokens, and knows one holder.
fn may_be_granted_fast(claim: &Claim, mode: EnterMode) -> bool {
    claim.reserved == 0 && claim.share.is_whole() && mode.adds_claim()
}

/// Returns until when the server may execute a request that is sent now, in its seconds.
fn not_after(clock: &ServerClock) -> u64 {
    clock.micros() / 1_000_000 + NOT_AFTER.as_secs()
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
    use crate::client::{parse_reply, store_error};

    fn refusal(reply: &str) -> Error {
        let parsed = parse_reply(reply.as_bytes()).expect("a reply");
        let Value::Error(error) = parsed else {
            panic!("{reply} is an error")
        };
        store_error(error.into())
    }

    /// Shows G-04.
    #[test]
    fn fast_path_grants_only_whole_claims_without_reserved_tokens() {
        let claim = |share, reserved| {
            let mut claim = leasehold_conformance::support::claim("a");
            (claim.share, claim.reserved) = (share, reserved);
            claim
        };
        for (claim, mode, may) in [
            (claim(Share::MUTEX, 0), EnterMode::Queue, true),
            (claim(Share::WRITER, 0), EnterMode::TryNow, true),
            (claim(Share::MUTEX, 0), EnterMode::Refresh, false),
            (claim(Share::MUTEX, 1), EnterMode::Queue, false),
            (claim(Share::READER, 0), EnterMode::Queue, false),
            (claim(Share::READER, 1), EnterMode::TryNow, false),
        ] {
            assert_eq!(may_be_granted_fast(&claim, mode), may, "{claim:?} {mode:?}");
        }
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
