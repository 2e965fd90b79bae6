//! Renewal: one task per engine, for every claim that waits or is held.

mod schedule;
#[cfg(test)]
mod tests;

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::calls::{StoreCalls, WeakStoreCalls};
use super::depart::{PendingEntry, depart};
use super::events::contained;
use super::validity::{End, Phase, Validity, safe_duration};
use crate::metric_labels::RenewalOutcome;
use crate::runtime::background::Detached;
use crate::runtime::clock::{BootInstant, BootTimer};
use crate::{Claim, LossReason, Result};

pub(crate) use schedule::Renewals;
use schedule::{renew_interval, reply_timeout, retry_delay};

/// The renewal task: runs while its engine exists, and again after a panic.
pub(crate) async fn run(calls: WeakStoreCalls, renewals: Arc<Renewals>, timer: Arc<BootTimer>) {
    let mut rounds = FuturesUnordered::new();

    loop {
        let due = renewals.due();
        let (valid, expired): (Vec<_>, Vec<_>) = due
            .validities
            .into_iter()
            .partition(|validity| validity.valid_until().is_some());

        // A task that keeps the store open for a moment could be the last one that does. Then it
        // would close the store while the process exits.
        let has_work = !(expired.is_empty() && valid.is_empty());
        if has_work && let Some(calls) = calls.upgrade() {
            for validity in expired {
                depart_expired(&calls, &validity);
            }
            if !valid.is_empty() {
                rounds.push(round(calls, &renewals, valid));
            }
        }

        tokio::select! {
            biased;
            fired = timer.fires_at(due.next_wakeup) => {
                fired.expect("a timer that was created can be set and read");
            }
            () = renewals.rescheduled() => {}
            Some(()) = rounds.next() => {}
        }
    }
}

/// Renews many claims with one request, and applies the reply to each.
async fn round(calls: StoreCalls, renewals: &Renewals, validities: Vec<Arc<Validity>>) {
    let sent_at = BootInstant::now();
    let replies = renew_batch(&calls, &validities, sent_at).await;

    for (validity, reply) in validities.iter().zip(replies) {
        contained(|| calls.meters().renewal(reply.outcome()));
        match reply {
            RenewReply::Renewed(lease) => {
                let until = sent_at.saturating_add(safe_duration(lease));
                apply_to_current(renewals, validity, |validity| {
                    validity.set_late(false);
                    validity.extend(until);
                    sent_at.saturating_add(renew_interval(validity, sent_at, until))
                });
            }
            RenewReply::Gone => {
                validity.revoke();
                renewals.revoke(validity.claim.id);
            }
            RenewReply::Unknown => apply_to_current(renewals, validity, |validity| {
                validity.set_late(true);
                let now = BootInstant::now();
                now.saturating_add(retry_delay(validity, now))
            }),
        }
    }
}

/// Applies a reply to the present hold of the claim, and schedules its next renewal.
///
/// A cohort may pass the hold on at any time, so that another validity of the same claim takes the
/// place of the one that was renewed. If that happens before `apply`, the old validity has ended
/// and takes no extension. If it happens after `apply`, the new validity may have copied the end
/// from before the extension. Either way the present hold would not benefit from the reply, and
/// would not be scheduled by it. So the reply is applied again, until `reschedule` finds, under the
/// lock of the schedule, the validity to which it was applied. A waiting claim is not passed on:
/// what replaces it is its grant, which a reply about the waiting claim does not concern.
fn apply_to_current(
    renewals: &Renewals,
    renewed: &Arc<Validity>,
    apply: impl Fn(&Validity) -> BootInstant,
) {
    loop {
        let validity = renewals.current(renewed);
        let due = apply(&validity);

        let is_superseded = renewals.reschedule(&validity, due);
        if !is_superseded || validity.phase() == Phase::Waiting {
            return;
        }
    }
}

/// What a client knows of one claim after a renewal.
enum RenewReply {
    Renewed(Duration),
    Gone,
    Unknown,
}

impl RenewReply {
    fn outcome(&self) -> RenewalOutcome {
        match self {
            Self::Renewed(_) => RenewalOutcome::Renewed,
            Self::Gone => RenewalOutcome::Gone,
            Self::Unknown => RenewalOutcome::NoReply,
        }
    }
}

/// Renews claims in one request, or each alone if that request fails because of one of them.
///
/// A damaged queue, for example, must not keep the client from renewing the others.
async fn renew_batch(
    calls: &StoreCalls,
    validities: &[Arc<Validity>],
    now: BootInstant,
) -> Vec<RenewReply> {
    let claims: Vec<Claim> = validities
        .iter()
        .map(|validity| &*validity.claim)
        .cloned()
        .collect();

    match calls.renew(&claims, reply_timeout(validities, now)).await {
        Err(error) if claims.len() > 1 && !error.is_unavailable() => {
            renew_each(calls, validities, now).await
        }
        reply => reply_per_claim(reply, claims.len()),
    }
}

/// Renews claims one after the other. Each request takes a part of the time that those behind it
/// have left.
async fn renew_each(
    calls: &StoreCalls,
    validities: &[Arc<Validity>],
    mut now: BootInstant,
) -> Vec<RenewReply> {
    let mut replies = Vec::with_capacity(validities.len());
    for (at, validity) in validities.iter().enumerate() {
        let limit = reply_timeout(&validities[at..], now);
        let reply = calls.renew(slice::from_ref(&*validity.claim), limit).await;
        replies.extend(reply_per_claim(reply, 1));
        now = BootInstant::now();
    }
    replies
}

fn reply_per_claim(reply: Result<Vec<Option<Duration>>>, count: usize) -> Vec<RenewReply> {
    match reply {
        Ok(leases) => leases
            .into_iter()
            .map(|lease| lease.map_or(RenewReply::Gone, RenewReply::Renewed))
            .collect(),
        Err(_) => (0..count).map(|_| RenewReply::Unknown).collect(),
    }
}

/// Makes an expired claim leave, as the store may still have it.
///
/// A revoked claim does not leave, because it is already gone. The guard keeps the local resources
/// of the claim until it is dropped.
fn depart_expired(calls: &StoreCalls, validity: &Validity) {
    let loss = validity.ending().and_then(End::loss);
    if loss.is_some_and(|reason| reason != LossReason::Revoked) {
        let claim = Arc::clone(&validity.claim);
        let departure = depart(calls.clone(), claim, PendingEntry::Replied);
        drop(Detached::new(departure));
    }
}
