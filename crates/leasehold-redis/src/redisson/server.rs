//! The server: the requests about claims, and their replies.

use std::sync::Arc;
use std::time::Duration;

use super::class::{Class, permits};
use super::field::{InspectReply, RawHolder, foreign, token_in, words};
use super::keys::{KeyMapper, RedissonKeys, uuid_text};
use super::local_claim::{ClaimField, LATE_MAX, RedissonClaim};
use crate::client;
use crate::client::{
    Links, READ_TIMEOUT, Script, ServerClock, Value, decode, reply_timeout, with_reply_timeout,
};
use crate::local_claims::LocalClaims;
use leasehold_core::internal::BootInstant;
use leasehold_core::store::{Claim, Share, check_same_kind};
use leasehold_core::{Error, Result, Token};

/// How long after it was sent the server may execute a request to lock.
const NOT_AFTER: Duration = Duration::from_secs(5);
/// How long the server refuses requests of a claim that has left: longer than a request is late.
const DEPARTED: Duration = Duration::from_secs(2 * LATE_MAX.as_secs());
/// The `lockWatchdogTimeout` of Redisson, unless a program sets it.
const WATCHDOG_DEFAULT: Duration = Duration::from_secs(30);
/// The number of holds that one request renews.
const RENEWALS_MAX: usize = 64;

/// The server, and the rules by which keys and leases are written there.
#[derive(Debug)]
pub(super) struct RedissonServer {
    /// The background link receives the messages of all channels.
    pub(super) links: Links,
    pub(super) clock: Arc<ServerClock>,
    pub(super) mapper: KeyMapper,
    /// The lease of holds that are renewed, if it replaces that of the lock.
    pub(super) watchdog: Option<Duration>,
}

/// The reply to a request to lock.
pub(super) enum LockReply {
    Granted(Token),
    /// Other claims have the lock.
    Held {
        /// When the lease of a holder ends, if it has an end.
        left: Option<Duration>,
        /// The first holders.
        holders: Vec<RawHolder>,
    },
    /// The claim has left.
    Gone,
}

/// What the server did with a request to lock; `lua/lock.lua` describes the replies.
enum LockOutcome {
    Granted {
        token: Token,
        /// The claim's field of the hash.
        field: String,
    },
    NotGranted(LockReply),
    /// The request is too late, and the server executed nothing.
    Late {
        server_micros: u64,
    },
    /// The key is not a lock of this type, or a semaphore with another number of permits.
    Refused(Error),
}

impl LockOutcome {
    fn parse(reply: Value, share: Share) -> Option<Self> {
        let words: Vec<Vec<u8>> = decode(reply).ok()?;
        let [letter, detail, holders @ ..] = &words[..] else {
            return None;
        };
        let detail = String::from_utf8(detail.clone()).ok()?;
        let outcome = match std::str::from_utf8(letter).ok()? {
            "G" => Self::Granted {
                token: token_in(&detail)?,
                field: detail,
            },
            "H" => {
                let left: i64 = detail.parse().ok()?;
                Self::NotGranted(LockReply::Held {
                    left: u64::try_from(left).ok().map(Duration::from_millis),
                    holders: RawHolder::parse_all(holders),
                })
            }
            "C" => Self::NotGranted(LockReply::Gone),
            "L" => Self::Late {
                server_micros: detail.parse().ok()?,
            },
            "F" => Self::Refused(foreign(&detail)),
            "S" => Self::Refused(other_size(share, &detail)),
            _ => return None,
        };
        Some(outcome)
    }
}

impl RedissonServer {
    /// Tries once to lock for a claim, in the way that `mode` names, and records a grant in
    /// `claims`.
    pub(super) async fn lock(
        &self,
        claims: &LocalClaims<ClaimField>,
        local: &Arc<RedissonClaim>,
        mode: &str,
    ) -> Result<LockReply> {
        let mut sent_at = local.request_sent();
        let mut outcome = self.send_lock(local, mode, sent_at).await?;
        if let LockOutcome::Late { server_micros } = outcome {
            // The server executed nothing, and the client now knows its clock.
            local.replied(sent_at);
            self.clock.set(server_micros, BootInstant::now());
            sent_at = local.request_sent();
            outcome = self.send_lock(local, mode, sent_at).await?;
        }

        let reply = match outcome {
            LockOutcome::Granted { token, field } => {
                *local.details.field.lock() = Some(field);
                if claims.hold(local, token) {
                    Ok(LockReply::Granted(token))
                } else {
                    Ok(LockReply::Gone)
                }
            }
            LockOutcome::NotGranted(reply) => Ok(reply),
            LockOutcome::Refused(error) => Err(error),
            LockOutcome::Late { .. } => Err(Error::unavailable("the server's clock is not steady")),
        };
        // A renewal at the same time must know of the request until the grant is recorded.
        local.replied(sent_at);
        reply
    }

    /// Sends a request to lock, which was noted at `sent_at`, and returns the reply.
    async fn send_lock(
        &self,
        local: &RedissonClaim,
        mode: &str,
        sent_at: BootInstant,
    ) -> Result<LockOutcome> {
        let claim = &local.claim;
        let departed = local.details.keys.departed(claim.id);
        let mut keys = vec![&*local.details.keys.lock, &departed];
        keys.extend(local.details.keys.to_lock());

        let micros = NOT_AFTER.as_secs() * 1_000_000;
        let not_after = (self.clock.micros() + micros).to_string();
        let uuid = uuid_text(claim.id);
        let lease = millis(claim.lease);
        let words = words(claim);
        let (permits, slots) = permits(local.share());
        let class = self.mapper.class;
        let size = if class == Class::Semaphore {
            permits.to_string()
        } else {
            mode.to_owned()
        };
        let slots = slots.to_string();
        let may_be_there = if local.has_earlier(sent_at) { "1" } else { "" };
        let channel = &local.details.keys.channel;
        let arguments: [&str; 8] = [
            &uuid,
            &lease,
            &not_after,
            &words,
            &size,
            channel,
            &slots,
            may_be_there,
        ];

        let script = &class.scripts().lock;
        let reply = self.run(script, claim.lease, &keys, &arguments).await;
        if reply.as_ref().is_err_and(|error| !error.is_unavailable()) {
            local.replied(sent_at);
        }
        LockOutcome::parse(reply?, local.share()).ok_or_else(|| self.protocol_error())
    }

    /// Removes a claim from its lock. Returns whether it held, and how many clients were notified.
    pub(super) async fn unlock(&self, claim: &Claim, may_lock_late: bool) -> Result<(bool, u64)> {
        let keys = self.mapper.keys(&claim.name)?;
        let departed = keys.departed(claim.id);
        let refused_for = may_lock_late.then(|| millis(DEPARTED));

        let uuid = uuid_text(claim.id);
        let id = claim.id.to_string();
        let arguments = [
            &*uuid,
            &id,
            &keys.channel,
            refused_for.as_deref().unwrap_or(""),
        ];
        let script = &self.mapper.class.scripts().unlock;
        let mut names = vec![&*keys.lock, &departed];
        names.extend(keys.to_lock());
        let lease = self.store_lease(claim);
        let reply = self.run(script, lease, &names, &arguments).await?;

        let counts: Result<(u64, u64)> = decode(reply);
        let (was_there, notified) = counts.map_err(|_| self.protocol_error())?;
        Ok((was_there == 1, notified))
    }

    /// Returns what the server knows of a lock.
    pub(super) async fn inspect(&self, keys: &RedissonKeys) -> Result<InspectReply> {
        let script = &self.mapper.class.scripts().inspect;
        let reply = self
            .run(script, READ_TIMEOUT, &keys.to_inspect(), &[])
            .await?;
        let words: Result<Vec<Vec<u8>>> = decode(reply);
        InspectReply::parse(&words.map_err(|_| self.protocol_error())?)
            .ok_or_else(|| self.protocol_error())?
    }

    /// Returns whether a claim still holds. A lease that the holder does not renew stays as it is.
    pub(super) async fn check_hold(&self, local: &Arc<RedissonClaim>) -> Result<bool> {
        let lease = if local.claim.auto_renew {
            millis(local.claim.lease)
        } else {
            String::new()
        };
        let checked = self.renew_part(std::slice::from_ref(local), |_| lease.clone());
        Ok(checked.await? == [true])
    }

    /// Renews held claims; returns for each whether it still holds.
    pub(super) async fn renew_held(&self, held: &[Arc<RedissonClaim>]) -> Result<Vec<bool>> {
        let mut renewed = Vec::with_capacity(held.len());
        for part in held.chunks(RENEWALS_MAX) {
            let leased = self.renew_part(part, |claim| millis(claim.lease));
            renewed.extend(leased.await?);
        }
        Ok(renewed)
    }

    /// Renews held claims for the lease that `lease_of` returns; without a text it stays as it is.
    async fn renew_part(
        &self,
        held: &[Arc<RedissonClaim>],
        lease_of: impl Fn(&Claim) -> String,
    ) -> Result<Vec<bool>> {
        let keys: Vec<&str> = held
            .iter()
            .flat_map(|local| local.details.keys.to_renew())
            .collect();
        let texts: Vec<String> = held
            .iter()
            .flat_map(|local| {
                let field = local.field().unwrap_or_default();
                let permits = permits(local.share()).0.to_string();
                [field, lease_of(&local.claim), permits]
            })
            .collect();
        let arguments: Vec<&str> = texts.iter().map(String::as_str).collect();

        let leases = held.iter().map(|local| local.claim.lease);
        let lease = leases.min().unwrap_or_default();
        let script = &self.mapper.class.scripts().renew;
        let reply: String = decode(self.run(script, lease, &keys, &arguments).await?)?;
        if reply.len() != held.len() {
            return Err(self.protocol_error());
        }
        Ok(reply.bytes().map(|renewed| renewed == b'1').collect())
    }

    /// Runs a script on the caller link if the caller's runtime drives it, and on the background
    /// link otherwise.
    async fn run(
        &self,
        script: &Script,
        lease: Duration,
        keys: &[&str],
        arguments: &[&str],
    ) -> Result<Value> {
        let limit = reply_timeout(lease);
        let session = self.links.for_request().session(limit).await?;
        let reply = script.run(&session, keys, arguments);
        with_reply_timeout(&session, limit, reply).await
    }

    /// Closes all connections after a malformed reply, as no further reply can be trusted.
    fn protocol_error(&self) -> Error {
        self.links.reconnect();
        client::protocol_error()
    }

    /// Returns the lease of a claim: the watchdog's, if the URL sets it and the holder renews.
    ///
    /// The lease of an `RReadWriteLock` is never longer than the watchdog's.
    pub(super) fn store_lease(&self, claim: &Claim) -> Duration {
        match self.watchdog {
            Some(watchdog) if claim.auto_renew => watchdog,
            _ if claim.auto_renew && self.mapper.class == Class::ReadWrite => {
                claim.lease.min(WATCHDOG_DEFAULT)
            }
            _ => claim.lease,
        }
    }

    /// Refuses a fixed lease that Redisson would shorten.
    ///
    /// A reader of Redisson renews the hash for its own watchdog's timeout. It does so even if
    /// another reader has set a longer lease.
    pub(super) fn check_lease(&self, claim: &Claim) -> Result<()> {
        let longest = self.watchdog.unwrap_or(WATCHDOG_DEFAULT);
        if claim.auto_renew || self.mapper.class != Class::ReadWrite || claim.lease <= longest {
            return Ok(());
        }
        let error = Error::unsupported(format!(
            "a fixed lease above {longest:?} is not kept: the renewals of Redisson's readers \
             shorten it"
        ));
        Err(error.help("use a shorter lease, or let the client renew the hold"))
    }
}

/// Returns how a claim takes an `RReadWriteLock`.
pub(super) fn mode_of(share: Share) -> &'static str {
    if share == Share::READER {
        "read"
    } else {
        "write"
    }
}

/// Returns the error for a semaphore that has another number of permits than the claim.
fn other_size(requested: Share, size: &str) -> Error {
    let present = size
        .parse()
        .ok()
        .and_then(|slots| Share::slots(1, slots).ok());
    match present.map(|present| check_same_kind(requested, present)) {
        Some(Err(error)) => error.help(
            "use the size of the semaphore; if permits of an RSemaphore are held, use another name",
        ),
        _ => Error::mismatch(format!("the semaphore has {size} permits"))
            .help("use the size of the semaphore, or another name"),
    }
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}
