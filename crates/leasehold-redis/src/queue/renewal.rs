//! Renewals: a script once in a while, and a ping of the connection in between.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use futures_util::{StreamExt, stream};

use super::claims::{ClaimValidity, Claims, TrackedClaim};
use super::messages::{Part, Push, Renewed, parse_renewals};
use super::record::{self, LivenessRef, LockKey, LockKeys};
use super::scripts;
use super::server::{Server, protocol_error};
use crate::client::{
    ServerCall, Session, StoreServers, decode, id_text, reply_timeout, with_reply_timeout,
};
use leasehold_core::internal::BootInstant;
use leasehold_core::store::Claim;
use leasehold_core::{ClaimId, Result};

/// How many claims one script renews. With a larger number, the script would delay the requests of
/// all other clients.
const BATCH: usize = 100;
/// How many scripts are sent at a time, so that each reply comes soon, however many there are.
const BATCHES: usize = 64;
/// The pause after a round with unusable keys, so that the next round does not follow at once.
const UNUSABLE_PAUSE: Duration = Duration::from_millis(10);

/// Renews claims on their servers. Returns how long each is valid from now; `None` for a claim that
/// is gone.
///
/// It reads the validity of the claims in the table, and writes what the replies say into it.
pub(super) async fn renew(
    servers: &StoreServers<Server>,
    table: &Claims,
    claims: &[Claim],
) -> Result<Vec<Option<Duration>>> {
    let round = Round {
        servers,
        sent_at: BootInstant::now(),
    };
    // The grant of another client's claim would be pushed to this one, so it is not renewed.
    let ours = claims.iter().filter_map(|claim| {
        let tracked = table.tracked(claim.id)?;
        Some(OwnClaim { claim, tracked })
    });
    let missed = round.renew_on_servers(ours.collect()).await?;
    if !missed.unusable.is_empty() {
        // The engine renews them again soon, and more often as their end comes near.
        tokio::time::sleep(UNUSABLE_PAUSE).await;
    }

    let valid_for = claims.iter().map(|claim| {
        // The claim may have left in the meantime.
        let tracked = table.tracked(claim.id)?;
        round.valid_for(claim, &tracked, &missed)
    });
    Ok(valid_for.collect())
}

/// A claim of this client.
#[derive(Clone)]
struct OwnClaim<'a> {
    claim: &'a Claim,
    tracked: Arc<TrackedClaim>,
}

impl OwnClaim<'_> {
    fn validity(&self) -> ClaimValidity {
        self.tracked.validity()
    }
}

/// A round of renewals.
struct Round<'a> {
    servers: &'a StoreServers<Server>,
    /// The moment before all its requests.
    sent_at: BootInstant,
}

impl Round<'_> {
    /// Renews the claims on their servers, all at once. An outage of one server of a cluster does
    /// not concern the claims of the others. Nor does a slot without a master.
    async fn renew_on_servers(&self, ours: Vec<OwnClaim<'_>>) -> Result<Missed> {
        let renewals = self
            .by_server(ours)
            .into_iter()
            .map(async |(server, claims)| {
                let renewed = match server {
                    Ok(server) => self.renew_on(&server, &claims).await,
                    Err(error) => Err(error),
                };
                (claims, renewed)
            });
        self.combined(join_all(renewals).await)
    }

    /// Returns the claims of each server, and those of slots without a master.
    fn by_server<'a>(
        &self,
        ours: Vec<OwnClaim<'a>>,
    ) -> Vec<(Result<Arc<Server>>, Vec<OwnClaim<'a>>)> {
        let mut groups: Vec<(Result<Arc<Server>>, Vec<OwnClaim<'_>>)> = Vec::new();
        for own in ours {
            let server = self.servers.server_of(&LockKey(&own.claim.name));
            let group = groups.iter_mut().find(|(known, _)| match (known, &server) {
                (Ok(known), Ok(server)) => Arc::ptr_eq(known, server),
                (Err(_), Err(_)) => true,
                _ => false,
            });
            match group {
                Some((_, claims)) => claims.push(own),
                None => groups.push((server, vec![own])),
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
                Ok(more) => {
                    missed.gone.extend(more.gone);
                    missed.unusable.extend(more.unusable);
                }
                Err(error) if have_all_failed || !self.servers.is_cluster() => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, "a part of the cluster does not renew its claims");
                    missed
                        .unusable
                        .extend(claims.iter().map(|own| own.claim.id));
                }
            }
        }
        Ok(missed)
    }

    async fn renew_on(&self, server: &Server, claims: &[OwnClaim<'_>]) -> Result<Missed> {
        // In a cluster, the claims of other servers do not wait for a reconnect.
        let limit = if self.servers.is_cluster() {
            Duration::ZERO
        } else {
            shortest(claims)
        };
        let session = server.links.background.session(limit).await?;

        let (alive, due): (Vec<OwnClaim<'_>>, Vec<OwnClaim<'_>>) =
            claims.iter().cloned().partition(|own| {
                let state = own.tracked.state();
                state.is_covered_by_ping(session.epoch, self.sent_at)
            });
        let renewing = self.renew_due(server, &session, &due);
        let pinging = self.ping(&session, alive);
        let (mut outcomes, pinged) = join(renewing, pinging).await;
        outcomes.extend(pinged);
        self.combined(outcomes)
    }

    /// Returns how long a claim is valid from the beginning of the round.
    fn valid_for(
        &self,
        claim: &Claim,
        tracked: &TrackedClaim,
        missed: &Missed,
    ) -> Option<Duration> {
        if missed.gone.contains(&claim.id) {
            return None;
        }
        Some(if missed.unusable.contains(&claim.id) {
            tracked.validity().remaining(self.sent_at)
        } else {
            tracked.renewed(self.sent_at)
        })
    }

    /// Renews claims by a ping; returns `None` without claims.
    async fn ping<'a>(
        &self,
        session: &Session,
        claims: Vec<OwnClaim<'a>>,
    ) -> Option<RequestOutcome<'a>> {
        if claims.is_empty() {
            return None;
        }
        let pinging = self.servers.ping(session);
        let pinged = with_reply_timeout(session, reply_limit(&claims), pinging).await;
        Some((claims, pinged.map(|()| Missed::default())))
    }

    /// Renews claims by scripts; returns the outcome of each.
    async fn renew_due<'a>(
        &self,
        server: &Server,
        session: &Session,
        due: &[OwnClaim<'a>],
    ) -> Vec<RequestOutcome<'a>> {
        // A script takes one lease and one grace for all its claims.
        let mut alike: BTreeMap<_, Vec<OwnClaim<'a>>> = BTreeMap::new();
        for own in due {
            alike
                .entry((own.claim.lease, own.validity().grace))
                .or_default()
                .push(own.clone());
        }

        // In a cluster, the keys of a script must be of one slot.
        let batch = if self.servers.is_cluster() { 1 } else { BATCH };
        let batches: Vec<_> = alike
            .values()
            .flat_map(|claims| claims.chunks(batch))
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

    /// Renews claims with the same lease and the same grace.
    async fn renew_batch(
        &self,
        server: &Server,
        session: &Session,
        claims: &[OwnClaim<'_>],
    ) -> Result<Missed> {
        let Some(first) = claims.first() else {
            return Ok(Missed::default());
        };
        let keys: Vec<_> = claims
            .iter()
            .flat_map(|own| LockKeys::new(LockKey(&own.claim.name), self.servers).to_vec())
            .collect();
        let ids: String = claims
            .iter()
            .map(|own| id_text(own.claim.id).to_string())
            .collect();
        let grace = first.validity().grace;
        let liveness = LivenessRef::of(&server.links.background, &server.client, grace);
        let life = record::life(first.claim);

        let arguments: [Part<'_>; 3] = [&ids, &liveness, &life];
        let sent_at = BootInstant::now();
        let call = ServerCall {
            script: &scripts::RENEW,
            keys: &keys,
            arguments: &arguments,
        };
        let limit = reply_limit(claims);
        let renewing = self
            .servers
            .run(call, limit / 2, |server| &server.links.background);
        let reply: String = decode(with_reply_timeout(session, limit, renewing).await?)?;
        let replies = parse_renewals(&reply, &id_text(first.claim.id), claims.len())
            .ok_or_else(|| protocol_error(self.servers))?;

        let mut missed = Missed::default();
        for (own, renewed) in claims.iter().zip(replies) {
            if renewed == Renewed::Unusable {
                missed.unusable.insert(own.claim.id);
            } else if !own.tracked.apply_renewal(renewed, sent_at, liveness.epoch) {
                own.tracked.apply_push(&Push::Gone);
                missed.gone.insert(own.claim.id);
            }
        }
        Ok(missed)
    }
}

/// The claims of a request, and those of them that it did not renew.
type RequestOutcome<'a> = (Vec<OwnClaim<'a>>, Result<Missed>);

/// Claims that a round of renewals did not renew.
#[derive(Default)]
struct Missed {
    gone: HashSet<ClaimId>,
    /// Claims of locks with a damaged key. It proves nothing about the other claims.
    unusable: HashSet<ClaimId>,
}

/// Returns how long to wait for a connection on which claims are renewed.
fn shortest(claims: &[OwnClaim<'_>]) -> Duration {
    claims
        .iter()
        .map(|own| reply_timeout(own.claim.lease))
        .min()
        .unwrap_or(Duration::from_secs(1))
}

/// Returns how long to wait for a reply about these claims.
///
/// A deaf connection must be replaced while the claims are still safe, and before the engine renews
/// them again, after a third of the remaining time.
fn reply_limit(claims: &[OwnClaim<'_>]) -> Duration {
    const MIN: Duration = Duration::from_millis(250);
    const MAX: Duration = Duration::from_secs(5);
    claims
        .iter()
        .map(|own| own.validity().of_reply() / 6)
        .min()
        .unwrap_or(MAX)
        .clamp(MIN, MAX)
}
