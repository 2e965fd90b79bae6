//! The numbers of slots: each holder of a semaphore gets numbers that no other holder has.
//!
//! A store counts slots and does not number them. So the number 3 of the semaphore `gpu` is a mutex
//! of its own, `gpu/slot/3`. Only holders of the semaphore acquire these mutexes, one for each of
//! their slots. The holders have at most N slots, so one of the N mutexes is free for each slot.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument;

use super::acquire::{Acquired, attempt_until_granted, record_end};
use super::calls::REPLY_TIMEOUT;
use super::events::AcquireEvents;
use super::limits::Outage;
use super::{AcquireOptions, Engine, Hold, WaitLimit};
use crate::claim::is_part_of;
use crate::{Claim, ClaimId, Entry, LockState, Name, Refused, Result, Share};

/// The largest semaphore with numbered slots. A larger one counts load, not devices, and trying its
/// numbers would take too long.
pub(crate) const NUMBERED_MAX: u32 = 1024;

/// The hold of a semaphore, and the numbers of its slots.
#[derive(Debug)]
pub(crate) struct NumberedHold {
    pub(crate) semaphore: Hold,
    pub(crate) slots: Vec<Slot>,
}

/// A number, and the hold of its mutex.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) number: u32,
    pub(crate) hold: Hold,
}

/// Acquires a semaphore, and then the numbers of its slots.
///
/// # Cancel safety
/// As [`acquire`](super::acquire::acquire).
pub(crate) async fn acquire(
    engine: &Arc<Engine>,
    options: &AcquireOptions,
    limit: WaitLimit,
) -> Result<Result<NumberedHold, Refused>> {
    let events = AcquireEvents::begin(&engine.calls, &options.name);
    let acquiring = acquire_both(engine, options, limit, &events);
    let acquired = acquiring.instrument(events.span()).await;
    record_end(events, &acquired, |numbered| &numbered.semaphore);
    acquired
}

async fn acquire_both(
    engine: &Arc<Engine>,
    options: &AcquireOptions,
    limit: WaitLimit,
    events: &AcquireEvents,
) -> Result<Result<NumberedHold, Refused>> {
    let deadline = limit.deadline();
    loop {
        let rest = limit.rest(deadline);
        let acquiring = attempt_until_granted(engine, options, rest, events, Outage::default());
        let semaphore = match rest.bound(options.reply_timeout, pin!(acquiring)).await? {
            Ok(semaphore) => semaphore,
            Err(refused) => return Ok(Err(refused)),
        };

        let rest = limit.rest(deadline);
        let refused = match take_numbers(engine, &semaphore, options, rest).await {
            Ok(Ok(slots)) => return Ok(Ok(NumberedHold { semaphore, slots })),
            Ok(Err(refused)) => Ok(Err(refused)),
            // The semaphore was lost, so it is acquired again.
            Err(error) if error.is_lost() => continue,
            Err(error) => Err(error),
        };

        // The caller finds no slot of its own held. No work ran, so neither an error nor a loss
        // matters.
        let _ = timeout(options.reply_timeout, semaphore.release()).await;
        return refused;
    }
}

/// Takes a number for each slot that `semaphore` holds; returns who has them if the time is over.
///
/// `limit` ends the tries. Holders that are about to end keep their numbers for a moment, so there
/// are a few tries in any case.
///
/// # Cancel safety
/// Dropping the future gives back the numbers that it has taken.
async fn take_numbers(
    engine: &Arc<Engine>,
    semaphore: &Hold,
    options: &AcquireOptions,
    limit: WaitLimit,
) -> Result<Result<Vec<Slot>, Refused>> {
    const TRIES_MIN: u32 = 5;
    const RETRY_MIN: Duration = Duration::from_millis(5);
    const RETRY_MAX: Duration = Duration::from_millis(250);

    let deadline = match limit {
        WaitLimit::Forever => None,
        WaitLimit::Never => Some(Instant::now()),
        WaitLimit::AtMost(limit) => Instant::now().checked_add(limit),
    };
    let mut taking = Taking {
        engine,
        semaphore,
        options,
        reply_timeout: match limit {
            WaitLimit::Forever => REPLY_TIMEOUT,
            WaitLimit::Never | WaitLimit::AtMost(_) => options.reply_timeout,
        },
        taken: Vec::new(),
        refused: None,
    };
    let mut tries = 1;
    let mut retry = RETRY_MIN;
    while !taking.try_all().await? {
        semaphore.check()?;
        taking.break_stale().await?;

        let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if is_over && tries >= TRIES_MIN {
            let unknown = Refused::new(options.name.clone());
            return Ok(Err(taking.refused.unwrap_or(unknown)));
        }
        tries += 1;
        sleep(retry).await;
        retry = (retry * 2).min(RETRY_MAX);
    }
    Ok(Ok(taking.taken))
}

struct Taking<'a> {
    engine: &'a Arc<Engine>,
    semaphore: &'a Hold,
    options: &'a AcquireOptions,
    /// How long each request waits for its reply.
    reply_timeout: Duration,
    taken: Vec<Slot>,
    /// The last refusal of a number.
    refused: Option<Refused>,
}

impl Taking<'_> {
    /// Tries every number once. Returns whether enough of them are taken.
    async fn try_all(&mut self) -> Result<bool> {
        let wanted = self.options.share.weight() as usize;
        self.taken.retain(|slot| slot.hold.check().is_ok());

        for number in 0..self.slots() {
            if self.taken.len() == wanted {
                break;
            }
            if self.taken.iter().any(|slot| slot.number == number) {
                continue;
            }

            match self.try_one(number).await? {
                Ok(hold) => self.taken.push(Slot { number, hold }),
                Err(refused) => self.refused = Some(refused),
            }
        }
        let are_held = self.taken.iter().all(|slot| slot.hold.check().is_ok());
        Ok(are_held && self.taken.len() == wanted)
    }

    async fn try_one(&self, number: u32) -> Result<Acquired> {
        let options = AcquireOptions {
            name: self.slot_name(number)?,
            share: Share::MUTEX,
            // The label lets other holders see which claim of the semaphore the number belongs to.
            label: self.claim().to_string(),
            part_of: Some(self.claim()),
            ..self.options.clone()
        };
        let events = AcquireEvents::unrecorded(&self.engine.calls, &options.name);
        let outage = Outage::default();
        let never = WaitLimit::Never;
        let trying = attempt_until_granted(self.engine, &options, never, &events, outage);
        never.bound(self.reply_timeout, pin!(trying)).await
    }

    /// Breaks the holds of numbers whose claim no longer holds the semaphore.
    ///
    /// A store may detect a crash for the semaphore first, and for the number only later.
    async fn break_stale(&self) -> Result<()> {
        let calls = &self.engine.calls;
        let mut numbered = Vec::new();
        for number in 0..self.slots() {
            let name = self.slot_name(number)?;
            numbered.push(calls.inspect(&name, self.reply_timeout).await?);
        }
        // The semaphore is read after the numbers, because a claim acquires them in the other
        // order: each claim that was seen with a number had held the semaphore before. If it is not
        // among the holders now, it has lost the semaphore for good, since no id is granted twice,
        // and its number is stale. If the semaphore were read first, a claim could be granted the
        // semaphore and a number between the two reads, and a number in use would be broken.
        let name = &self.options.name;
        let semaphore = calls.inspect(name, self.reply_timeout).await?;

        let holders: HashSet<ClaimId> = semaphore.holders().map(|entry| entry.id).collect();
        if !holders.contains(&self.claim()) {
            // This claim is lost, or the store reports other ids. Then no number is known to be
            // stale.
            return Ok(());
        }

        for state in &numbered {
            for entry in stale(state, &holders) {
                tracing::debug!(name = %state.name, label = %entry.info.label, "stale number");
                let claim = Claim::of_entry(state.name.clone(), entry);
                self.engine.revoke(claim.id);
                calls.leave(&claim).await?;
            }
        }
        Ok(())
    }

    fn claim(&self) -> ClaimId {
        self.semaphore.claim().id
    }

    fn slots(&self) -> u32 {
        self.options.share.capacity()
    }

    fn slot_name(&self, number: u32) -> Result<Name> {
        Name::parse(&format!("{}/slot/{number}", self.options.name.as_str()))
    }
}

/// Returns the holders of a number that no longer hold the semaphore.
///
/// Another program may hold the lock with this name under any label. The id of its claim shows that
/// it is no number. So does that of a number of an older release, which the store frees in time.
fn stale<'a>(
    state: &'a LockState,
    holders: &'a HashSet<ClaimId>,
) -> impl Iterator<Item = &'a Entry> {
    state.holders().filter(|entry| {
        let claim: Option<ClaimId> = entry.info.label.parse().ok();
        claim.is_some_and(|claim| is_part_of(entry.id, claim) && !holders.contains(&claim))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use async_trait::async_trait;
    use leasehold_conformance::support::within_timeout;

    use super::*;
    use crate::claim::{draw_claim_id, draw_part_of};
    use crate::store::{Intercept, Intercepted, Standing, claimant_here, replies};
    use crate::stores::Memory;
    use crate::{Entered, Locks, OnContention, Store, Token};

    #[test]
    fn only_a_number_of_a_claim_that_is_gone_is_stale() {
        let (gone, holder) = (draw_claim_id(), draw_claim_id());
        let holders = HashSet::from([holder]);
        let is_stale = |id: ClaimId, label: &str| {
            let token = Token::new(1).expect("not zero");
            let info = claimant_here(label).expect("a short label");
            let entry = replies::entry(id, Share::MUTEX, Standing::Held { token }, info);

            let name = Name::parse("gpu/slot/0").expect("a valid name");
            let mut lock_state = replies::lock_state(name);
            lock_state.entries = vec![entry];
            stale(&lock_state, &holders).count() == 1
        };

        assert!(is_stale(draw_part_of(gone), &gone.to_string()));
        assert!(!is_stale(draw_part_of(holder), &holder.to_string()));
        for label in [&gone.to_string(), "nightly", ""] {
            assert!(!is_stale(draw_claim_id(), label), "{label:?}");
        }
    }

    /// A store that breaks the first hold of the semaphore, and until then refuses all numbers.
    #[derive(Debug)]
    struct BrokenOnce {
        store: Memory,
        semaphores: AtomicU32,
    }

    #[async_trait]
    impl Intercept for BrokenOnce {
        fn inner(&self) -> &dyn Store {
            &self.store
        }

        async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
            let is_semaphore = claim.name.as_str() == "gpu";
            let count = self
                .semaphores
                .fetch_add(is_semaphore.into(), Ordering::SeqCst);
            if !is_semaphore && count == 1 {
                return Ok(Entered::new(Standing::Gone, claim.lease));
            }

            let entered = self.store.enter(claim, on_contention).await?;
            if is_semaphore && count == 0 {
                self.store.leave(claim).await?;
            }
            Ok(entered)
        }

        async fn leave(&self, claim: &Claim) -> Result<bool> {
            // A release that does not wait for this reply leaves a number behind.
            sleep(Duration::from_millis(30)).await;
            self.store.leave(claim).await
        }
    }

    /// Opens the store as a client whose hold of the semaphore is broken if it is the first.
    fn client(store: &Memory, is_first: bool) -> Locks {
        let store = Intercepted(BrokenOnce {
            store: store.clone(),
            semaphores: AtomicU32::new(if is_first { 0 } else { 2 }),
        });
        Locks::from_store(store, "memory:").expect("it starts")
    }

    async fn acquired(locks: &Locks) -> crate::Guard {
        let numbered = locks
            .semaphore("gpu", 1)
            .lease(Duration::from_secs(3))
            .numbered();
        let acquired = within_timeout("it is granted", numbered.acquire()).await;
        acquired.expect("granted")
    }

    /// Shows G-39.
    #[tokio::test]
    async fn release_gives_the_numbers_back_before_it_returns() {
        let memory = Memory::new();
        let locks = client(&memory, false);
        let held = acquired(&locks).await;
        assert_eq!(held.slots(), [0]);
        let events = held
            .holds()
            .filter(|hold| hold.origin().validity.events().is_some())
            .count();
        assert_eq!(events, 1, "a number is no hold of its own");

        held.release().await.expect("released");
        for name in ["gpu", "gpu/slot/0"] {
            let lock_state = locks.inspect(name).await.expect("a state");
            assert_eq!(lock_state.entries, [], "{name}");
        }
    }

    /// No work has begun, so the caller need not know of it.
    ///
    /// Shows G-39.
    #[tokio::test]
    async fn semaphore_that_is_lost_before_it_has_numbers_is_acquired_again() {
        let held = acquired(&client(&Memory::new(), true)).await;
        held.check().expect("the second hold is not lost");
        held.release().await.expect("released");
    }

    /// A store may detect a crash for the semaphore long before the one for the number.
    ///
    /// Shows G-39.
    #[tokio::test]
    async fn number_whose_semaphore_is_lost_is_broken() {
        let memory = Memory::new();
        let gone = draw_claim_id();
        let info = claimant_here(&gone.to_string()).expect("a short label");
        let name = Name::parse("gpu/slot/0").expect("a valid name");
        let mut number = Claim::new(name, Share::MUTEX, Arc::new(info));
        number.id = draw_part_of(gone);
        let entered = memory.enter(&number, OnContention::Fail).await;
        assert!(entered.expect("it replies").standing.token().is_some());

        let held = acquired(&client(&memory, false)).await;
        assert_eq!(held.slots(), [0]);
        held.release().await.expect("released");
    }
}
