//! Renewals: a script now and then, and a sign of life in between.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::record;
use super::session::Session;
use super::{Redis, answered, patience, script, text};
use crate::clock::Moment;
use crate::{Claim, ClaimId, Result};

/// How many claims a script renews: a larger one would keep everybody else waiting.
const BATCH: usize = 100;
/// How many scripts are asked for at a time: each is to be answered soon, however many there are in all.
const BATCHES: usize = 64;

impl Redis {
    /// Every third of a lease a script renews it. In between, a claim that is judged by its connection needs a sign of
    /// life of that connection, one for all.
    pub(super) async fn renew_all(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        let question = Moment::now();
        let session = self.far.session(shortest(claims)).await?;
        let (alive, due): (Vec<_>, Vec<_>) = claims.iter().partition(|claim| self.is_alive(claim, &session, question));
        let (gone, alive) = join(self.renew_due(&session, &due), self.ping(&session, &alive)).await;
        let gone = gone?;
        alive?;
        // Everything was asked after `question`, so from there each is safe for what it is safe for.
        let safe = |claim: &Claim| {
            let left = self.ledger.page(claim.id)?.known().lease_left(claim.lease, question);
            (!gone.contains(&claim.id)).then(|| left.min(self.safe_for(claim)))
        };
        Ok(claims.iter().map(safe).collect())
    }

    /// Whether a sign of life on this session is enough for a claim.
    fn is_alive(&self, claim: &Claim, session: &Session, now: Moment) -> bool {
        let Some(grace) = self.grace(claim) else { return false };
        let Some(page) = self.ledger.page(claim.id) else { return false };
        page.known().is_vouched_for(session.epoch, claim.lease, grace, now)
    }

    async fn ping(&self, session: &Session, claims: &[&Claim]) -> Result<()> {
        if claims.is_empty() {
            return Ok(());
        }
        answered(session, self.patience_with(claims), session.ping()).await
    }

    /// How long to listen: a connection that has gone deaf must be replaced while the claims are still safe, and before
    /// the engine, which listens for a third of what is left, asks anew.
    fn patience_with(&self, claims: &[&Claim]) -> Duration {
        const MIN: Duration = Duration::from_millis(250);
        const MAX: Duration = Duration::from_secs(5);
        claims.iter().map(|claim| self.safe_for(claim) / 6).min().unwrap_or(MAX).clamp(MIN, MAX)
    }

    /// The ones that are gone, of those that were due.
    async fn renew_due(&self, session: &Session, due: &[&Claim]) -> Result<Vec<ClaimId>> {
        // What a script is told of its claims, it is told once: most of a client's are alike.
        let mut alike: BTreeMap<_, Vec<&Claim>> = BTreeMap::new();
        for claim in due {
            alike.entry((claim.lease, self.grace(claim))).or_default().push(claim);
        }
        let batches = alike.values().flat_map(|claims| claims.chunks(BATCH));
        let batches: Vec<_> = batches.map(|batch| self.renew_batch(session, batch)).collect();
        stream::iter(batches).buffer_unordered(BATCHES).try_concat().await
    }

    /// Renews claims with the same lease and the same grace.
    async fn renew_batch(&self, session: &Session, claims: &[&Claim]) -> Result<Vec<ClaimId>> {
        let Some(first) = claims.first() else { return Ok(Vec::new()) };
        let keys: Vec<String> = claims.iter().map(|claim| record::key_of(&claim.name)).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let ids: String = claims.iter().map(|claim| record::id_text(claim.id)).collect();
        let (bond, life) = (self.bond(first), record::life(first).to_string());
        let arguments: [&str; 3] = [&ids, &record::expected(&bond), &life];
        let asked = Moment::now();
        let answer =
            answered(session, self.patience_with(claims), script::RENEW.run(session, &keys, &arguments)).await?;
        let answer = text(answer)?;
        let Some(flags) = answer.strip_prefix(&record::id_text(first.id)).filter(|flags| flags.len() == claims.len())
        else {
            return Err(self.strange());
        };
        let mut gone = Vec::new();
        for (claim, flag) in claims.iter().zip(flags.bytes()) {
            let Some(page) = self.ledger.page(claim.id) else { continue };
            if flag == b'1' {
                page.renewed(asked, bond.epoch);
            } else {
                page.gone();
                gone.push(claim.id);
            }
        }
        Ok(gone)
    }
}

fn shortest(claims: &[Claim]) -> Duration {
    claims.iter().map(|claim| patience(claim.lease)).min().unwrap_or(Duration::from_secs(1))
}
