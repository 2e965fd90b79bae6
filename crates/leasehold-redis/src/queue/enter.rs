//! Requests that put a claim into a queue or find it there, and what counts as a grant. A request
//! also names what earlier replies have shown of other clients' claims.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

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
use leasehold_core::internal::BootInstant;
use leasehold_core::store::{Claim, Share, Standing, check_same_kind, share_from_parts};
use leasehold_core::{Error, Name, Result, Token};

/// How long `WAIT` waits for replicas. It is less than the silence after which a connection counts
/// as broken.
const REPLICATION_MAX: Duration = Duration::from_millis(1500);
/// How many names are remembered. For a forgotten name the client has no token hint, and the time
/// of its absences starts again.
const NAMES_MAX: usize = 4096;
/// How many absences of a name are remembered.
const ABSENCES_MAX: usize = 256;

/// A claim that its caller enters, refreshes or polls, with the parts of the store that its
/// requests read.
///
/// A reply is written into `tracked`, and into the observations of the claim's name.
pub(super) struct Entering<'a> {
    pub(super) claim: &'a Claim,
    pub(super) tracked: &'a TrackedClaim,
    pub(super) server: Arc<Server>,
    pub(super) servers: &'a StoreServers<Server>,
    pub(super) observations: &'a Observations,
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
        self.apply(mode, first.reply, first.sent, "")
    }

    fn apply(
        &self,
        mode: EnterMode,
        reply: Value,
        sent: Sent,
        expired: &str,
    ) -> Result<EnterReply> {
        let reply = self.parse(reply)?;
        self.observations.observe(&self.claim.name, &reply, expired);
        self.tracked.apply_reply(mode, &reply, sent);
        Ok(reply)
    }

    fn request(&self, mode: EnterMode) -> EnterRequest<'_> {
        let claim = self.claim;
        let server = &self.server;
        let (highest_token, expired) = self.observations.hint(&claim.name);
        // The fast path neither waits after a failover nor reserves tokens.
        let may_grant_fast = self.longest_lease.is_none() && claim.reserved == 0;
        let proposal = if may_grant_fast && claim.share.is_whole() && mode.adds_claim() {
            server.clock.micros().max(highest_token + 1)
        } else {
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

/// The tokens and absences that this client has observed of other clients' claims, by name.
#[derive(Debug, Default)]
pub(super) struct Observations {
    names: Mutex<HashMap<Name, Observed>>,
}

impl Observations {
    /// Returns the highest token received for a name, and the absences that have lasted for their
    /// holder's grace, in the encoding of the script.
    pub(super) fn hint(&self, name: &Name) -> (u64, String) {
        let names = self.names.lock();
        let Some(observed) = names.get(name) else {
            return Default::default();
        };

        let expired = observed.expired(BootInstant::now());
        (observed.highest_token, expired)
    }

    /// Remembers a reply that has just been read, to a request that named the `expired` absences.
    ///
    /// A new name is added only if its reply has anything to remember.
    pub(super) fn observe(&self, name: &Name, reply: &EnterReply, expired: &str) {
        let mut names = self.names.lock();
        if let Some(observed) = names.get_mut(name) {
            return observed.observe(reply, expired, BootInstant::now());
        }
        if !Observed::is_in(reply) {
            return;
        }

        if names.len() >= NAMES_MAX {
            make_room(&mut names);
        }
        names
            .entry(name.clone())
            .or_default()
            .observe(reply, expired, BootInstant::now());
    }

    /// Returns the moment at which the next absence will have lasted for its holder's grace.
    pub(super) fn next_expiry(&self, name: &Name) -> Option<BootInstant> {
        self.names.lock().get(name)?.next_expiry()
    }
}

/// Forgets the names of which only a token is known, and the others only if they are as many: their
/// absences would not end by the grace.
fn make_room(names: &mut HashMap<Name, Observed>) {
    names.retain(|_, observed| !observed.absences.is_empty());
    if names.len() >= NAMES_MAX {
        names.clear();
    }
}

/// What a client has observed of other clients' claims for a name: their tokens and absences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Observed {
    /// The highest token seen.
    pub(crate) highest_token: u64,
    /// The absences, each with the moment after its nonce was read.
    absences: Vec<(Absence, BootInstant)>,
}

impl Observed {
    /// Whether a reply contains anything to remember.
    #[must_use]
    pub(crate) fn is_in(reply: &EnterReply) -> bool {
        reply.standing.token().is_some() || !reply.absences.is_empty()
    }

    /// Remembers the token and the absences in a reply that was read at `now`, to a request that
    /// named the `expired` absences.
    ///
    /// A reply names only some of many holders. So an absence that it does not name is kept, unless
    /// the request named it.
    pub(crate) fn observe(&mut self, reply: &EnterReply, expired: &str, now: BootInstant) {
        let token = reply.standing.token().map_or(0, Token::get);
        self.highest_token = self.highest_token.max(token);
        if reply.next_expiry.is_none() {
            return;
        }

        let first_read = |absence: &Absence| {
            let known = self.absences.iter().find(|(known, _)| known == absence);
            known.map_or(now, |(_, read)| *read)
        };
        let named: Vec<_> = reply
            .absences
            .iter()
            .map(|absence| (absence.clone(), first_read(absence)))
            .collect();

        self.absences.retain(|(known, _)| {
            let is_named = named
                .iter()
                .any(|(absence, _)| absence.claim == known.claim);
            !is_named && !expired.contains(&known.nonce)
        });
        self.absences.extend(named);
        let surplus = self.absences.len().saturating_sub(ABSENCES_MAX);
        self.absences.drain(..surplus);
    }

    /// Returns the absences that have lasted for their holder's grace, in the encoding of the
    /// script.
    ///
    /// The grace counts by this client's clock, and no clock of a server matters. A script wrote
    /// the nonce when it found no connection of the holder, and any later script of the holder
    /// clears it. So all that the holder's trust rests on was sent before the nonce was read here,
    /// and a grace after the reading, with a margin for the rate of clocks, that trust is over. A
    /// holder that has come back since keeps its hold, because the script revokes only one that
    /// still has this nonce.
    #[must_use]
    pub(crate) fn expired(&self, now: BootInstant) -> String {
        let mut text = String::new();
        for (absence, read) in &self.absences {
            if now >= absence.ends_at(*read) {
                // Writing to a string cannot fail.
                let _ = write!(text, "{}{}", absence.claim, absence.nonce);
            }
        }
        text
    }

    /// Returns the moment at which the next absence will have lasted for its holder's grace.
    #[must_use]
    pub(crate) fn next_expiry(&self) -> Option<BootInstant> {
        self.absences
            .iter()
            .map(|(absence, read)| absence.ends_at(*read))
            .min()
    }
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

    fn absence() -> Absence {
        Absence {
            claim: "claim".to_owned(),
            nonce: "nonce".to_owned(),
            grace: Duration::from_secs(1),
        }
    }

    fn about(absences: &[Absence]) -> EnterReply {
        EnterReply {
            standing: Standing::Queued { ahead: 1 },
            last_token: 0,
            is_next: true,
            position: 1,
            next_expiry: Some(Duration::from_secs(1)),
            absences: absences.to_vec(),
            refused: None,
        }
    }

    #[test]
    fn absence_outlasts_the_tokens_of_thousands_of_names() {
        let name = |text: &str| Name::parse(text).expect("a name");
        let mut held = about(&[]);
        held.standing = Standing::Held {
            token: Token::new(7).expect("not zero"),
        };
        let observations = Observations::default();
        observations.observe(&name("crashed"), &about(&[absence()]), "");
        for number in 0..5_000 {
            observations.observe(&name(&number.to_string()), &held, "");
        }
        assert!(observations.next_expiry(&name("crashed")).is_some());
        assert!(observations.names.lock().len() <= NAMES_MAX);
    }

    #[test]
    fn absence_that_a_reply_does_not_name_is_kept() {
        let now = BootInstant::now();
        let mut observed = Observed::default();

        observed.observe(&about(&[absence()]), "", now);
        observed.observe(&about(&[]), "", now);
        assert!(observed.next_expiry().is_some());
        observed.observe(&about(&[]), "claimnonce", now);
        assert_eq!(observed.next_expiry(), None);
    }
}
