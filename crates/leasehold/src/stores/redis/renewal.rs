//! Renewals: a script now and then, and a sign of life in between.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use futures_util::future::join;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::record::{self, Renewed};
use super::{Redis, scripts};
use crate::runtime::clock::BootInstant;
use crate::stores::redis_client::Session;
use crate::stores::redis_client::{self, reply_timeout, text, with_reply_timeout};
use crate::{Claim, ClaimId, Result};

/// How many claims a script renews: a larger one would keep everybody else waiting.
const BATCH: usize = 100;
/// How long a round waits whose claims could not all be renewed, so that the next does not follow at once.
const UNUSABLE_PAUSE: Duration = Duration::from_millis(10);
/// How many scripts are asked for at a time: each is to be answered soon, however many there are in all.
const BATCHES: usize = 64;

impl Redis {
    /// Every third of a lease a script renews it. In between, a hold that is judged by its connection needs a sign of life
    /// of that connection, one for all. A claim that waits needs none: its connection is looked for when its turn comes.
    pub(super) async fn renew_all(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        let request = BootInstant::now();
        let session = self.background_link.session(shortest(claims)).await?;
        // A claim of another client is not renewed: its grant would be pushed to this one.
        let ours = claims
            .iter()
            .filter(|claim| self.claims.tracked(claim.id).is_some());
        let (alive, due): (Vec<_>, Vec<_>) =
            ours.partition(|claim| self.is_alive(claim, &session, request));
        let (renewed, alive) =
            join(self.renew_due(&session, &due), self.ping(&session, &alive)).await;
        let missed = renewed?;
        alive?;
        if !missed.unusable.is_empty() {
            // They are asked for again soon, and ever sooner as their end comes near.
            tokio::time::sleep(UNUSABLE_PAUSE).await;
        }
        Ok(claims
            .iter()
            .map(|claim| self.safe_from(request, claim, &missed))
            .collect())
    }

    /// For how long from `request` a claim is safe. Everything was asked after that moment.
    fn safe_from(&self, request: BootInstant, claim: &Claim, missed: &Missed) -> Option<Duration> {
        if missed.gone.contains(&claim.id) {
            return None;
        }
        let tracked = self.claims.tracked(claim.id)?;
        if missed.unusable.contains(&claim.id) {
            return Some(tracked.safe_until().duration_since(request));
        }
        let state = tracked.state();
        // A claim that waits is kept for its lease, and counts on nothing else. The engine trusts a grant for less.
        let most = if state.is_held() {
            self.safe_for(claim)
        } else {
            claim.lease
        };
        let safe = state.lease_left(claim.lease, request).min(most);
        tracked.set_safe_until(request.saturating_add(safe));
        Some(safe)
    }

    /// Whether a sign of life on this session is enough for a claim.
    fn is_alive(&self, claim: &Claim, session: &Session, now: BootInstant) -> bool {
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

    async fn ping(&self, session: &Session, claims: &[&Claim]) -> Result<()> {
        if claims.is_empty() {
            return Ok(());
        }
        with_reply_timeout(session, self.reply_timeout_for(claims), session.ping()).await
    }

    /// How long to listen: a connection that has gone deaf must be replaced while the claims are still safe, and before
    /// the engine, which listens for a third of what is left, asks anew.
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

    /// The ones that were not renewed, of those that were due.
    async fn renew_due(&self, session: &Session, due: &[&Claim]) -> Result<Missed> {
        // What a script is told of its claims, it is told once: most of a client's are alike.
        let mut alike: BTreeMap<_, Vec<&Claim>> = BTreeMap::new();
        for claim in due {
            alike
                .entry((claim.lease, self.grace(claim)))
                .or_default()
                .push(claim);
        }
        let batches = alike.values().flat_map(|claims| claims.chunks(BATCH));
        let batches: Vec<_> = batches
            .map(|batch| self.renew_batch(session, batch))
            .collect();
        let add = |mut all: Missed, more: Missed| async move {
            all.gone.extend(more.gone);
            all.unusable.extend(more.unusable);
            Ok(all)
        };
        stream::iter(batches)
            .buffer_unordered(BATCHES)
            .try_fold(Missed::default(), add)
            .await
    }

    /// Renews claims with the same lease and the same grace.
    async fn renew_batch(&self, session: &Session, claims: &[&Claim]) -> Result<Missed> {
        let Some(first) = claims.first() else {
            return Ok(Missed::default());
        };
        let keys: Vec<String> = claims
            .iter()
            .map(|claim| record::key_of(&claim.name))
            .collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let ids: String = claims
            .iter()
            .map(|claim| redis_client::id_text(claim.id))
            .collect();
        let (liveness_ref, life) = (self.liveness_ref(first), record::life(first).to_string());
        let arguments: [&str; 3] = [&ids, &record::expected(&liveness_ref), &life];
        let sent_at = BootInstant::now();
        let reply = with_reply_timeout(
            session,
            self.reply_timeout_for(claims),
            scripts::RENEW.run(session, &keys, &arguments),
        )
        .await?;
        let reply = text(reply)?;
        let Some(replies) =
            record::parse_renewals(&reply, &redis_client::id_text(first.id), claims.len())
        else {
            return Err(self.protocol_error());
        };
        let mut missed = Missed::default();
        for (claim, renewed) in claims.iter().zip(replies) {
            let Some(tracked) = self.claims.tracked(claim.id) else {
                continue;
            };
            if renewed == Renewed::Unusable {
                missed.unusable.insert(claim.id);
            } else if !tracked.renewal(renewed, sent_at, liveness_ref.epoch) {
                tracked.revoked();
                missed.gone.insert(claim.id);
            }
        }
        Ok(missed)
    }
}

/// Claims that a renewal did not reach.
#[derive(Default)]
struct Missed {
    gone: HashSet<ClaimId>,
    /// A key of their locks is damaged, which says nothing about the others.
    unusable: HashSet<ClaimId>,
}

fn shortest(claims: &[Claim]) -> Duration {
    claims
        .iter()
        .map(|claim| reply_timeout(claim.lease))
        .min()
        .unwrap_or(Duration::from_secs(1))
}
