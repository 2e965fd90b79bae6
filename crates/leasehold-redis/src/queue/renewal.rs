//! Renewals: a script once in a while, and a ping of the connection in between.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use futures_util::{StreamExt, stream};

use super::layout::reply;
use super::server::{LockKeys, Server};
use super::{Redis, record, scripts};
use crate::client::{ServerCall, Session, decode, id_text, reply_timeout, with_reply_timeout};
use leasehold_core::internal::BootInstant;
use leasehold_core::store::Claim;
use leasehold_core::{ClaimId, Result};

/// How many claims one script renews. With a larger number, the script would delay the requests of
/// all other clients.
const BATCH: usize = 100;
/// How many scripts are sent at a time, so that each reply comes soon, however many there are.
const BATCHES: usize = 64;
/// The pause after a round with unusable keys, so that the next round does not follow at once.
pub(super) const UNUSABLE_PAUSE: Duration = Duration::from_millis(10);

impl Redis {
    /// Renews the claims on their servers, all at once. An outage of one server of a cluster does
    /// not concern the claims of the others. Nor does a slot without a master.
    pub(super) async fn renew_on_servers(
        &self,
        claims: &[Claim],
        sent_at: BootInstant,
    ) -> Result<Missed> {
        // The grant of another client's claim would be pushed to this one, so it is not renewed.
        let ours = claims
            .iter()
            .filter(|claim| self.claims.tracked(claim.id).is_some());
        let groups = self.by_server(ours);

        let renewals = groups.into_iter().map(async |(server, claims)| {
            let renewed = match server {
                Ok(server) => self.renew_on(&server, &claims, sent_at).await,
                Err(error) => Err(error),
            };
            (claims, renewed)
        });
        self.combined(join_all(renewals).await)
    }

    /// Returns the claims of each server, and those of slots without a master.
    fn by_server<'a>(
        &self,
        claims: impl Iterator<Item = &'a Claim>,
    ) -> Vec<(Result<Arc<Server>>, Vec<&'a Claim>)> {
        let mut groups: Vec<(Result<Arc<Server>>, Vec<&Claim>)> = Vec::new();
        for claim in claims {
            let server = self.server_of(claim);
            let group = groups.iter_mut().find(|(known, _)| match (known, &server) {
                (Ok(known), Ok(server)) => Arc::ptr_eq(known, server),
                (Err(_), Err(_)) => true,
                _ => false,
            });
            match group {
                Some((_, claims)) => claims.push(claim),
                None => groups.push((server, vec![claim])),
            }
        }
        groups
    }

    /// Combines the outcomes of requests that were sent at the same time.
    ///
    /// In a cluster, the claims of a failed request are unusable if another request has succeeded:
    /// a server, or a slot that has no master or is being moved, fails alone.
    fn combined(&self, outcomes: Vec<RequestOutcome<'_>>) -> Result<Missed> {
        let have_all_failed = outcomes.iter().all(|(_, outcome)| outcome.is_err());
        let mut missed = Missed::default();
        for (claims, outcome) in outcomes {
            match outcome {
                Ok(more) => missed = missed.with(more),
                Err(error) if have_all_failed || !self.servers.is_cluster() => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, "a part of the cluster does not renew its claims");
                    missed = missed.with(Missed::unusable(&claims));
                }
            }
        }
        Ok(missed)
    }

    async fn renew_on(
        &self,
        server: &Server,
        claims: &[&Claim],
        sent_at: BootInstant,
    ) -> Result<Missed> {
        // In a cluster, the claims of other servers do not wait for a reconnect.
        let limit = if self.servers.is_cluster() {
            Duration::ZERO
        } else {
            shortest(claims)
        };
        let session = server.links.background.session(limit).await?;

        let (alive, due): (Vec<&Claim>, Vec<&Claim>) = claims
            .iter()
            .partition(|claim| self.is_covered_by_ping(claim, &session, sent_at));
        let renewing = self.renew_due(server, &session, &due);
        let pinging = self.ping(&session, alive);
        let (mut outcomes, pinged) = join(renewing, pinging).await;
        outcomes.extend(pinged);
        self.combined(outcomes)
    }

    /// Returns how long a claim is safe from `sent_at`, the moment before all requests of a round.
    pub(super) fn safe_from(
        &self,
        sent_at: BootInstant,
        claim: &Claim,
        missed: &Missed,
    ) -> Option<Duration> {
        if missed.gone.contains(&claim.id) {
            return None;
        }
        let tracked = self.claims.tracked(claim.id)?;
        if missed.unusable.contains(&claim.id) {
            return Some(tracked.safe_until().duration_since(sent_at));
        }

        // Only the lease keeps a waiter in the queue. The engine trusts a grant for less than the
        // lease.
        let state = tracked.state();
        let max = if state.is_held() {
            self.safe_for(claim)
        } else {
            claim.lease
        };
        let safe = state.lease_left(claim.lease, sent_at).min(max);
        tracked.set_safe_until(sent_at.saturating_add(safe));
        Some(safe)
    }

    /// Whether a ping of this session is enough to renew a claim.
    fn is_covered_by_ping(&self, claim: &Claim, session: &Session, now: BootInstant) -> bool {
        let Some(grace) = self.grace(claim) else {
            return false;
        };
        let Some(tracked) = self.claims.tracked(claim.id) else {
            return false;
        };
        tracked
            .state()
            .is_covered_by_liveness(session.epoch, claim.lease, grace, now)
    }

    /// Renews claims by a ping; returns `None` without claims.
    async fn ping<'a>(
        &self,
        session: &Session,
        claims: Vec<&'a Claim>,
    ) -> Option<RequestOutcome<'a>> {
        if claims.is_empty() {
            return None;
        }
        let pinging = self.servers.ping(session);
        let pinged = with_reply_timeout(session, self.reply_timeout_for(&claims), pinging).await;
        Some((claims, pinged.map(|()| Missed::default())))
    }

    /// Returns how long to wait for a reply about these claims.
    ///
    /// A deaf connection must be replaced while the claims are still safe, and before the engine
    /// renews them again, after a third of the remaining time.
    fn reply_timeout_for(&self, claims: &[&Claim]) -> Duration {
        const MIN: Duration = Duration::from_millis(250);
        const MAX: Duration = Duration::from_secs(5);
        claims
            .iter()
            .map(|claim| self.safe_for(claim) / 6)
            .min()
            .unwrap_or(MAX)
            .clamp(MIN, MAX)
    }

    /// Renews claims by scripts; returns the outcome of each.
    async fn renew_due<'a>(
        &self,
        server: &Server,
        session: &Session,
        due: &[&'a Claim],
    ) -> Vec<RequestOutcome<'a>> {
        // A script takes one lease and one grace for all its claims.
        let mut alike: BTreeMap<_, Vec<&'a Claim>> = BTreeMap::new();
        for claim in due {
            alike
                .entry((claim.lease, self.grace(claim)))
                .or_default()
                .push(claim);
        }

        let batches: Vec<_> = alike
            .values()
            .flat_map(|claims| claims.chunks(self.batch()))
            .map(async |batch| {
                let renewed = self.renew_batch(server, session, batch).await;
                (batch.to_vec(), renewed)
            })
            .collect();
        stream::iter(batches)
            .buffer_unordered(BATCHES)
            .collect()
            .await
    }

    /// Returns how many claims one script renews. In a cluster, its keys must be of one slot.
    fn batch(&self) -> usize {
        if self.servers.is_cluster() { 1 } else { BATCH }
    }

    /// Renews claims with the same lease and the same grace.
    async fn renew_batch(
        &self,
        server: &Server,
        session: &Session,
        claims: &[&Claim],
    ) -> Result<Missed> {
        let Some(first) = claims.first() else {
            return Ok(Missed::default());
        };
        let names: Vec<String> = claims
            .iter()
            .map(|claim| record::key_of(&claim.name))
            .collect();
        let lock_keys: Vec<LockKeys<'_>> = names
            .iter()
            .map(|key| LockKeys::new(key, &self.servers))
            .collect();
        let keys: Vec<&str> = lock_keys.iter().flat_map(LockKeys::texts).collect();
        let ids: String = claims.iter().map(|claim| id_text(claim.id)).collect();
        let liveness = self.liveness_ref(first, server);
        let expected = record::expected(&liveness);
        let life = record::life(first).to_string();

        let arguments: [&str; 3] = [&ids, &expected, &life];
        let sent_at = BootInstant::now();
        let call = ServerCall {
            script: &scripts::RENEW,
            keys: &keys,
            arguments: &arguments,
        };
        let limit = self.reply_timeout_for(claims);
        let renewing = self
            .servers
            .run(call, limit / 2, |server| &server.links.background);
        let reply: String = decode(with_reply_timeout(session, limit, renewing).await?)?;
        let replies = parse_renewals(&reply, &id_text(first.id), claims.len())
            .ok_or_else(|| self.protocol_error())?;

        let mut missed = Missed::default();
        for (claim, renewed) in claims.iter().zip(replies) {
            let Some(tracked) = self.claims.tracked(claim.id) else {
                continue;
            };
            if renewed == Renewed::Unusable {
                missed.unusable.insert(claim.id);
            } else if !tracked.apply_renewal(renewed, sent_at, liveness.epoch) {
                tracked.revoked();
                missed.gone.insert(claim.id);
            }
        }
        Ok(missed)
    }
}

/// The claims of a request, and those of them that it did not renew.
type RequestOutcome<'a> = (Vec<&'a Claim>, Result<Missed>);

/// Claims that a round of renewals did not renew.
#[derive(Default)]
pub(super) struct Missed {
    gone: HashSet<ClaimId>,
    /// Claims of locks with a damaged key. It proves nothing about the other claims.
    unusable: HashSet<ClaimId>,
}

impl Missed {
    pub(super) fn has_unusable(&self) -> bool {
        !self.unusable.is_empty()
    }

    fn unusable(claims: &[&Claim]) -> Self {
        Self {
            gone: HashSet::new(),
            unusable: claims.iter().map(|claim| claim.id).collect(),
        }
    }

    fn with(mut self, other: Self) -> Self {
        self.gone.extend(other.gone);
        self.unusable.extend(other.unusable);
        self
    }
}

fn shortest(claims: &[&Claim]) -> Duration {
    claims
        .iter()
        .map(|claim| reply_timeout(claim.lease))
        .min()
        .unwrap_or(Duration::from_secs(1))
}

/// The reply to a renewal, for one claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Renewed {
    /// The claim is held.
    Held,
    /// The claim is queued.
    Queued {
        /// The position among the waiters, from 1.
        position: u32,
        /// Whether a holder is absent.
        absence: AbsenceSeen,
    },
    /// The claim is not in the queue.
    Gone,
    /// A key of the claim's lock cannot be used.
    Unusable,
}

/// The absences that a renewal has found among a lock's holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AbsenceSeen {
    /// All holders are present.
    None,
    /// A holder is absent or its lease is over, and its record has no nonce.
    New,
    /// A holder is absent, and another client has written a nonce into its record.
    Noted,
}

/// Parses the reply to a renewal of `count` claims, of which `first` is the first.
pub(super) fn parse_renewals(text: &str, first: &str, count: usize) -> Option<Vec<Renewed>> {
    let (letters, positions) = text.strip_prefix(first)?.split_at_checked(count)?;
    let mut positions = positions.as_bytes().chunks(reply::POSITION.len);
    let renewed = letters
        .bytes()
        .map(|letter| parse_renewal(letter, &mut positions))
        .collect::<Option<Vec<_>>>()?;
    positions.next().is_none().then_some(renewed)
}

fn parse_renewal<'a>(
    letter: u8,
    positions: &mut impl Iterator<Item = &'a [u8]>,
) -> Option<Renewed> {
    let absence = match letter {
        b'1' => return Some(Renewed::Held),
        b'0' => return Some(Renewed::Gone),
        b'!' => return Some(Renewed::Unusable),
        b'Q' => AbsenceSeen::None,
        b'A' => AbsenceSeen::New,
        b'a' => AbsenceSeen::Noted,
        _ => return None,
    };
    let position = std::str::from_utf8(positions.next()?).ok()?.parse().ok()?;
    Some(Renewed::Queued { position, absence })
}

#[cfg(test)]
mod tests;
